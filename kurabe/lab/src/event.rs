//! What a trial says while it goes on: one JSON object a line on its standard output, the record
//! last; and what one that takes turns with others is told on its standard input.

use serde::{Deserialize, Serialize};

use crate::record::Phase;
use crate::reported::Reported;
use crate::slice::RunRecord;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    Phase {
        phase: Phase,
    },
    /// Something worth showing meanwhile: what is waited for, how far a workload has come.
    Status {
        text: String,
    },
    /// The workload acknowledges something, while one of several nodes is about to be killed, or was.
    Acknowledged {
        text: String,
    },
    /// The trial waits for its first turn: everything that comes before the measured run is done.
    Ready,
    /// One of several nodes waits for the others, until it is told [`TrialCommand::Go`].
    Meet {
        at: NodeBarrier,
    },
    /// What a trial made on a real disk. Only this may be wiped when the trial dies.
    Made {
        /// What tells it from what others make.
        marks: Vec<DiskMark>,
    },
    /// A turn is over, and everything is ready for another one.
    Slice {
        slice: Box<RunRecord>,
    },
    /// The trial's process cannot go on and yields no record.
    Error {
        message: String,
    },
    /// The trial is over.
    Record {
        record: Reported,
    },
}

/// Where nodes wait for each other, in the order in which they come there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeBarrier {
    /// Before the first node makes the file system: all have joined the cluster.
    Make,
    /// Before all mount it.
    Mount,
    /// Before the setup: all have mounted it.
    Setup,
    /// After the node of this number has laid out files that all have.
    LaidOut(u32),
    /// Before the run: all begin it at the same time.
    Run,
    /// After the runs of all.
    End,
    /// Before the node of this number unmounts it.
    Unmount(u32),
    /// After the node of this number has unmounted it.
    Gone(u32),
    /// After the first node has checked it: the device can be wiped.
    Leave,
}

impl NodeBarrier {
    /// What comes next, in words.
    pub fn words(self) -> String {
        match self {
            NodeBarrier::Make => "the cluster".into(),
            NodeBarrier::Mount => "the mount".into(),
            NodeBarrier::Setup => "the setup".into(),
            NodeBarrier::LaidOut(node) => format!("the end of the setup of node {node}"),
            NodeBarrier::Run => "the run".into(),
            NodeBarrier::End => "the end of its run".into(),
            NodeBarrier::Unmount(node) => format!("the unmount of node {node}"),
            NodeBarrier::Leave => "the end of the check".into(),
            NodeBarrier::Gone(node) => format!("what follows on the unmount of node {node}"),
        }
    }

    /// Whether what a node does before it can take any time: it is the user's, or the check.
    pub fn can_take_long(self) -> bool {
        matches!(
            self,
            NodeBarrier::LaidOut(_)
                | NodeBarrier::Run
                | NodeBarrier::End
                | NodeBarrier::Unmount(_)
                | NodeBarrier::Leave
        )
    }
}

/// What tells something on a disk from what somebody else makes there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskMark {
    /// What libblkid calls it: `ext4`, `zfs_member`.
    pub kind: String,
    /// Its UUID, empty of what has none. Absent where the workload makes it, whose UUID nobody knows
    /// beforehand: then any.
    pub uuid: Option<String>,
}

/// What a trial that takes turns is told, one JSON object a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "turn", rename_all = "kebab-case")]
pub enum TrialCommand {
    /// Carry one slice out.
    Slice {
        /// Round of the block, from 0: every contender has one slice in each.
        round: u32,
        /// Place within the round, from 0.
        position: u32,
        /// Which part of the workload it is, where a run is carried out in parts, from 0.
        #[serde(default)]
        part: u32,
        /// Whether no other slice follows, so that nothing need be made ready for one.
        last: bool,
    },
    /// All nodes have met.
    Go,
    /// Another node is dead, which is certain.
    Died { node: u32 },
    /// All nodes that live have met: ask what is left of what all of them acknowledged.
    Ask {
        /// The acknowledgements, in the order in which they came.
        acknowledged: Vec<String>,
    },
    /// There are no more turns.
    End,
}
