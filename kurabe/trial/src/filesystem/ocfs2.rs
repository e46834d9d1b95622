//! OCFS2: ocfs2-tools, and o2cb, the cluster that the kernel itself forms.

use std::fmt::Write;
use std::fs;
use std::ops::RangeInclusive;

use guest::{BuildSite, Error, Recipe};
use lab::contender::Contender;
use lab::spec::NodeSpec;

use super::kernel::{Cluster, KernelFileSystem, words};
use super::{FileSystem, InstanceContext, LayerTool};
use crate::locks::LockCalls;
use crate::nodes;
use crate::tool::{StepFailure, Toolbox, failed};

/// OCFS2: on one node without a cluster, on several by o2cb.
pub static OCFS2: FileSystem = FileSystem {
    tools: &[LayerTool { name: "mkfs.ocfs2", package: "ocfs2-tools", version: Some("-V") }],
    // Journals of several nodes.
    size_bytes_min: 512 << 20,
    modules: &["ocfs2", "ocfs2_dlm", "ocfs2_stack_o2cb", "virtio_net"],
    recipe: Some(&RECIPE),
    why_not_option,
    mkfs_flags: "FMnqvxV",
    ..FileSystem::of_kernel(
        "ocfs2",
        "extents and a journal for each node, by Oracle; one or several nodes; flushes with '@ barrier=1' only",
        KernelFileSystem {
            mkfs: &["mkfs.ocfs2", "-q", "-F", "-x"],
            complete,
            geometry: &["debugfs.ocfs2", "-R", "stats"],
            check: &["fsck.ocfs2", "-f", "-n"],
            repair: &["fsck.ocfs2", "-f", "-y"],
            check_meaning: |code| match code & 4 {
                4 => "errors were found",
                _ => "it could not be checked",
            },
            // o2cb finds out by itself: no heartbeat on the disk.
            cluster: Some(Cluster {
                join,
                leaving: None,
                left: |_| Ok(()),
                died: |_| Ok(()),
                locks: LOCKS,
            }),
            ..KernelFileSystem::PLAIN
        },
    )
};

/// Without those that it answers from what it holds.
const LOCKS: LockCalls = LockCalls {
    requests: &["ocfs2_stackglue:ocfs2_dlm_lock"],
    revocations: &["ocfs2:ocfs2_blocking_ast"],
};

/// o2cb's O2CB_HEARTBEAT_THRESHOLD: a node is dead that has not written for two seconds less than twice this number.
const THRESHOLD: &str = "--heartbeat-threshold=";
/// From what o2cb's own configuration takes to what is set for multipath: 12 to 120 s.
const THRESHOLDS: RangeInclusive<u32> = 7..=61;

fn threshold(options: &[String]) -> Option<&str> {
    options.iter().find_map(|word| word.strip_prefix(THRESHOLD))
}

fn why_not_option(contender: &Contender) -> Option<String> {
    let text = threshold(&contender.base().options)?;
    let (least, most) = (THRESHOLDS.start(), THRESHOLDS.end());
    if !text.parse().is_ok_and(|number| THRESHOLDS.contains(&number)) {
        return Some(format!("'{THRESHOLD}{text}': the threshold is {least} to {most}"));
    }
    (contender.environment.nodes() == 1)
        .then(|| format!("'{THRESHOLD}{text}': one node has no heartbeat; leave it out"))
}

fn complete(options: &mut Vec<String>, stage: &InstanceContext) {
    options.retain(|word| !word.starts_with(THRESHOLD));
    let own = match &stage.member {
        None => words(&["-M", "local"]),
        Some(member) => vec![
            "-N".into(),
            member.nodes.to_string(),
            "--cluster-stack=o2cb".into(),
            format!("--cluster-name={}", member.cluster),
        ],
    };
    options.splice(0..0, own);
}

/// Where o2cb and its tools look for the cluster.
const DIRECTORY: &str = "/etc/ocfs2";

/// The cluster of a node, as ocfs2.cluster.conf(5) has it.
fn configuration(member: &NodeSpec) -> String {
    let cluster = &member.cluster;
    let mut text = format!(
        "cluster:\n\theartbeat_mode = local\n\tnode_count = {}\n\tname = {cluster}\n",
        member.nodes
    );
    for number in 1..=member.nodes {
        let (name, address) = (NodeSpec::host_name_of(number), nodes::address_text(number));
        write!(
            text,
            "\nnode:\n\tnumber = {number}\n\tcluster = {cluster}\n\tip_port = 7777\n\t\
             ip_address = {address}\n\tname = {name}\n"
        )
        .expect("a string takes everything");
    }
    text
}

fn join(
    stage: &InstanceContext,
    member: &NodeSpec,
    tools: &mut Toolbox,
) -> Result<(), StepFailure> {
    let write = |path: &str, text: &str| fs::write(path, text).map_err(failed(path));
    fs::create_dir_all(DIRECTORY).map_err(failed(DIRECTORY))?;
    write(&format!("{DIRECTORY}/cluster.conf"), &configuration(member))?;
    write("/sys/fs/ocfs2/cluster_stack", "o2cb")?;
    let words = words(&["o2cb", "register-cluster", &member.cluster]);
    tools.expect(&words, "the cluster cannot be formed")?;
    threshold(&stage.mkfs_options).map_or(Ok(()), |text| {
        let cluster = &member.cluster;
        write(&format!("/sys/kernel/config/cluster/{cluster}/heartbeat/dead_threshold"), text)
    })
}

/// The tools, whose module the kernel has.
static RECIPE: Recipe = Recipe::of_packages("ocfs2", build);

fn build(site: &mut BuildSite<'_>) -> Result<(), Error> {
    let names = ["mkfs", "mount", "fsck", "debugfs"].map(|name| format!("{name}.ocfs2"));
    let names = names.iter().map(String::as_str).chain(["o2cb", "ocfs2_hb_ctl"]);
    site.take_tools("ocfs2-tools", &names.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_o2cbs_and_not_for_mkfs() {
        let why = |text: &str| {
            why_not_option(&Contender::parse(text, &[OCFS2.known()]).unwrap()).unwrap_or_default()
        };
        assert_eq!(why("ocfs2 --heartbeat-threshold=7 on 2 debian"), "");
        for number in ["6", "62", "x", ""] {
            let said = why(&format!("ocfs2 --heartbeat-threshold={number} on 2 debian"));
            assert!(said.ends_with("the threshold is 7 to 61"), "{said}");
        }
        assert!(why("ocfs2 --heartbeat-threshold=7 on debian").contains("one node"));
    }

    #[test]
    fn all_nodes_are_told_of_the_same_cluster() {
        let member =
            |number| NodeSpec { number, nodes: 3, cluster: "k12".into(), ..NodeSpec::default() };
        let text = configuration(&member(1));
        assert_eq!(text, configuration(&member(3)));
        assert!(
            text.starts_with(
                "cluster:\n\theartbeat_mode = local\n\tnode_count = 3\n\tname = k12\n"
            )
        );
        assert_eq!(text.matches("\nnode:\n").count(), 3);
        assert!(text.contains("\tip_address = 10.0.0.3\n\tname = node3\n"), "{text}");
    }
}
