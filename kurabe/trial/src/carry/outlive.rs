//! What a node does while another one is killed: it runs the workload, hands on what that acknowledges, and then asks
//! what is left of what all nodes acknowledged.
//!
//! Invariants: the others are told of a death only once it is certain, since a lock manager that takes over the locks
//! of a node that still writes destroys the file system; nothing here waits for the dead.

use std::sync::mpsc::{TryRecvError, channel};

use lab::spec::NodeDeath;

use super::*;
use crate::crash::{Finding, Receiver, finding_of, with_arguments};

/// How long a death, or a stop, can go unnoticed.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// The check that the user's check finds a loss at all: in an empty directory.
pub const SELF_TEST: &str = "self-test";
/// The check of the file system's own program.
pub const FSCK: &str = "fsck";

impl Trial<'_> {
    /// Everything from the run on.
    pub(super) fn outlive(
        &mut self,
        death: &NodeDeath,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let directory = instance.directory();
        self.run_acknowledged(death, instance, &directory)?;
        (self.emit)(&Event::Meet { at: NodeBarrier::End });
        let asks = loop {
            match self.wait_for_turn(tools)? {
                // The workload had ended by then.
                TrialCommand::Died { node } => self.hear_of_death(node, instance)?,
                TrialCommand::Ask { acknowledged } => {
                    self.begin(Phase::Check);
                    let checks = self.ask(death, &directory, &acknowledged)?;
                    self.record.checks.extend(checks);
                    break true;
                }
                TrialCommand::Go => break false,
                _ => return Err(StepFailure::of("this node was sent a command of another step")),
            }
        };
        self.meet(NodeBarrier::Leave, tools)?;
        self.unmount(instance, tools)?;
        if asks {
            let mut check = Check::new(FSCK);
            match self.timed(Phase::Check, || instance.check(tools)) {
                Ok(()) => check.count(None::<&str>),
                Err(StepFailure::Failed { message, output }) => {
                    check.count(Some(format!("{message}\n{output}")));
                }
                Err(failure) => return Err(failure),
            }
            self.record.checks.push(check);
        }
        self.meet(NodeBarrier::Leave, tools)
    }

    fn hear_of_death(&mut self, node: u32, instance: &mut dyn Instance) -> Result<(), StepFailure> {
        self.dead = Some(node);
        // On the console: the workload may wait for the file system without end.
        instance.died(node).inspect_err(|failure| eprintln!("{failure}"))
    }

    /// Runs the workload to its end.
    fn run_acknowledged(
        &mut self,
        death: &NodeDeath,
        instance: &mut dyn Instance,
        directory: &Path,
    ) -> Result<(), StepFailure> {
        let load = &self.spec.workload.load;
        let command =
            load.command().ok_or_else(|| StepFailure::of("the workload is no command"))?;
        let failed =
            |error: io::Error| StepFailure::of(format!("the pipe for acknowledgements: {error}"));
        let pipe = self.scratch.work().join("acknowledgements");
        let receiver = Receiver::start(&pipe).map_err(failed)?;
        let (own, nodes) = self.spec.node.as_ref().map_or((1, 1), |node| (node.number, node.nodes));
        let addresses: Vec<String> = (1..=nodes).map(nodes::address_text).collect();
        let environment = [
            (DIRECTORY_VARIABLE, directory.display().to_string()),
            ("KURABE_CONTENDER", self.spec.contender.label.clone()),
            ("KURABE_NODE", own.to_string()),
            ("KURABE_NODES", nodes.to_string()),
            ("KURABE_ADDRESSES", addresses.join(",")),
            (ACK_VARIABLE, pipe.display().to_string()),
        ];
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.begin(Phase::Run);
        let deadline = Some(Instant::now() + Duration::from_nanos(death.timeout_ns));
        let (sender, lines) = channel();
        let stop = self.stop;
        let ran = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                receiver.receive(|line| {
                    // Nobody listens any more once the run has failed.
                    let _ = sender.send(String::from_utf8_lossy(&line.0).into_owned());
                    Ok(())
                })
            });
            let running = scope.spawn(|| {
                let standard_output = Some(receiver.pipe());
                let bounds =
                    CommandBounds { deadline, standard_output, ..CommandBounds::default() };
                command::run(
                    &command,
                    directory,
                    &environment,
                    bounds,
                    &OutputTarget::Null,
                    None,
                    stop,
                )
            });
            let mut heard = Ok(());
            while !running.is_finished() {
                if let Ok(text) = lines.recv_timeout(LOOK_INTERVAL) {
                    (self.emit)(&Event::Acknowledged { text });
                }
                match self.turns.try_recv() {
                    Ok(TrialCommand::Died { node }) => heard = self.hear_of_death(node, instance),
                    Ok(_) | Err(TryRecvError::Empty) => {}
                    // The runner is gone.
                    Err(TryRecvError::Disconnected) => stop.raise(),
                }
            }
            let ran = running.join().expect("running a command does not panic");
            receiver.end();
            receiving.join().expect("receiving does not panic").map_err(failed)?;
            for text in lines.try_iter() {
                (self.emit)(&Event::Acknowledged { text });
            }
            heard?;
            ran.map_err(|error| StepFailure::of(error.to_string()))
        })?;
        commands::judge("the workload", &ran, false).map_err(|failure| match failure {
            StepFailure::TimedOut => StepFailure::of(format!(
                "the workload did not end within {} s; give it less to do, or a longer --timeout",
                Duration::from_nanos(death.timeout_ns).as_secs()
            )),
            failure => failure,
        })
    }

    /// Asks what is left, here and in an empty directory, where something must be missing.
    fn ask(
        &mut self,
        death: &NodeDeath,
        directory: &Path,
        acknowledged: &[String],
    ) -> Result<[Check; 2], StepFailure> {
        let check = self.spec.workload.check.as_ref();
        let check = check.ok_or_else(|| StepFailure::of("nothing says what may be lost"))?;
        let (file, empty) =
            (self.scratch.work().join("acknowledged"), self.scratch.work().join("empty"));
        let text: String = acknowledged.iter().flat_map(|line| [line, "\n"]).collect();
        std::fs::write(&file, text)
            .and_then(|()| std::fs::create_dir(&empty))
            .map_err(failed("the acknowledgements"))?;
        let found = |directory: &Path| -> Result<Finding, StepFailure> {
            let line = with_arguments(check, directory, &file);
            let deadline = Some(Instant::now() + Duration::from_nanos(death.check_timeout_ns));
            let bounds = CommandBounds { deadline, ..CommandBounds::default() };
            let place = &death.check_directory;
            let ran = command::run(&line, place, &[], bounds, &OutputTarget::Pipe, None, self.stop);
            finding_of(ran.map_err(|error| StepFailure::of(error.to_string()))?)
        };
        let [mut held, mut self_test] = [DURABILITY, SELF_TEST].map(Check::new);
        let left = found(directory)?;
        held.count(left.kind.is_violation().then(|| left.to_string()));
        let missing = found(&empty)?;
        self_test.count(missing.kind.is_violation().then(|| missing.to_string()));
        Ok([held, self_test])
    }
}
