//! Several nodes in guests: on one file system, asked what they see of each other, and one of them killed.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::harness::Site;
use super::{GuestTestLock, emulators, has_module, site_with_guest};

/// A site with a guest that several nodes can have a file system in.
fn site_with_gfs2() -> Option<(Site, GuestTestLock)> {
    let both = site_with_guest()?;
    let show = Command::new("apt-cache").args(["show", "gfs2-utils"]).output();
    let has_tools = show.is_ok_and(|show| show.status.success() && !show.stdout.is_empty());
    if !has_module(&both.0, "gfs2") || !has_tools {
        eprintln!("SKIPPED: GFS2's module or its tools cannot be had");
        return None;
    }
    Some(both)
}

/// Two nodes see each other's files, run at the same time, and leave a file system that checks clean; where one
/// of them fails, the record names it, and no guest is left.
#[test]
fn two_nodes_have_one_file_system() {
    let Some((site, _one)) = site_with_gfs2() else { return };
    let flags = ["--style", "basic", "--device", "mem:512M", "--rounds", "1"];
    site.compare(&["ext4 on 2 debian"], &flags, &["true"]).expect(2).says(&[
        "ext4 can be mounted by one node at a time",
        "ocfs2, gfs2; or by NFS: nfs over ext4",
    ]);
    site.compare(&["bindfs over nfs over ext4 on 2 debian"], &flags, &["true"])
        .expect(2)
        .says(&["2 nodes have a file system alone, or with nfs over it"]);
    site.compare(&["nfs over ext4"], &flags, &["true"]).expect(2).says(&["--on debian"]);
    site.compare(&["gfs2 on 1 debian"], &flags, &["true"]).expect(2).says(&["2 to 8"]);
    site.compare(&["lump over gfs2 on 2 debian"], &flags, &["true"]).expect(2);
    // Each waits until it sees what the other one wrote, and then has something to wait for no longer.
    let line = "other=../node$((3 - KURABE_NODE)); test $KURABE_NODES = 2 || exit 1; \
        echo $KURABE_NODE >x; sync x; \
        for i in $(seq 1000); do test -s $other/x && break; sleep 0.1; done; \
        read number <$other/x; test $number = $((3 - KURABE_NODE)) || exit 1; \
        case $KURABE_CONTENDER in fails) test $KURABE_NODE = 1 || exit 7; sleep 100;; esac";
    let contenders = [
        "works: gfs2 on 2 debian",
        "fails: gfs2 on 2 debian",
        "serves: nfs @ actimeo=0,lookupcache=none over ext4 on 2 debian",
    ];
    let ran = site.compare(&contenders, &flags, &[line]);
    ran.expect(1).says(&["node 2: the command exited with code 7"]);
    let works = site.record_of("works");
    assert_eq!(works["outcome"]["kind"], "completed", "{works}");
    let nodes = works["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), &nodes[1]["node"]), (2, &Value::from(2)));
    let written = |value: &Value| value["device"]["written_bytes"].as_u64().unwrap();
    let phases = works["phases"].as_array().unwrap();
    let of = |name: &str| phases.iter().find(|phase| phase["phase"] == name).unwrap();
    let whole = written(of("run")) + written(of("sync"));
    assert_eq!(nodes.iter().map(written).sum::<u64>(), whole, "{works}");
    assert!(nodes.iter().any(|node| node["began_ns"] == 0), "{nodes:?}");
    // Each reads what the other one wrote.
    let locks = |node: &Value, what: &str| node["locks"][what].as_u64().unwrap();
    assert!(nodes.iter().all(|node| locks(node, "requests") > 0), "{nodes:?}");
    assert!(nodes.iter().any(|node| locks(node, "revocations") > 0), "{nodes:?}");
    of("check");
    let serves = site.record_of("serves");
    assert_eq!(serves["outcome"]["kind"], "completed", "{serves}");
    let mounted = serves["mounted_as"].as_str().unwrap();
    assert!(mounted.starts_with("10.0.0.1:/ ") && mounted.contains(",vers=4.2,"), "{mounted}");
    assert_eq!(site.record_of("fails")["outcome"]["kind"], "failed");
    assert_eq!(emulators(&site), [0; 0]);
}

/// What one node writes the other one sees, and the control is caught.
#[test]
fn nodes_are_asked_what_they_see_of_each_other() {
    let Some((site, _one)) = site_with_gfs2() else { return };
    site.run(&["coherence", "ext4"]).expect(2).says(&["'ext4' has one node", "gfs2 on 2 debian"]);
    site.run(&["coherence", "gfs2 on 2 debian", "--questions", "3"]).expect(2).says(&["ask 15"]);
    let ran = site.run(&["coherence", "gfs2 on 2 debian", "--questions", "15"]);
    let line = |name: &str| ran.stdout.lines().find(|line| line.trim().starts_with(name)).unwrap();
    let words = |name: &str| line(name).split_whitespace().map(str::to_string).collect::<Vec<_>>();
    // GFS2 loses an appended record now and then (docs/reference/coherence.md).
    let is_lost = words("append")[2] == "0";
    let (code, verdict) = if is_lost { (3, "violated") } else { (0, "held") };
    assert_eq!(ran.code, Some(code), "{ran:#?}");
    assert_eq!(words("fsync-then-read")[1..8], ["yes", "1", "of", "1", "0", "of", "1,"]);
    assert_eq!(words("verdict")[1..3], [verdict, "caught,"]);
    assert_eq!(emulators(&site), [0; 0]);
}

/// The other node goes on, and finds what both acknowledged.
#[test]
fn a_node_dies_and_the_other_one_goes_on() {
    let Some((site, _one)) = site_with_gfs2() else { return };
    let check = "--check=while read -r name; do test -s $1/$name || exit 1; done <$2";
    let load =
        "for i in $(seq 60); do f=$KURABE_NODE-$i; echo $i >$f; sync $f; echo $f; sleep .1; done";
    let flags = ["crash", "--kill-after", "2s", "--out", "deaths", check];
    let refused = [&flags[..], &["--kill-node", "gfs2 on debian", "--", load]].concat();
    site.run(&refused).expect(2).says(&["kills one of several nodes"]);
    let asked = [&flags[..], &["--kill-node", "gfs2 on 2 debian", "--", load]].concat();
    let ran = site.run(&asked).expect(0);
    for text in ["held: everything", "node 2 was killed", "node 1 acknowledged nothing for"] {
        assert!(ran.stdout.contains(text), "{}", ran.stdout);
    }
    let text = fs::read_to_string(site.work().join("deaths/deaths.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let checks = result["deaths"][0]["death"]["checks"].as_array().unwrap();
    let found: Vec<_> =
        checks.iter().map(|one| (one["name"].as_str(), one["violated"].as_u64())).collect();
    let expected = [("durability", 0), ("self-test", 1), ("fsck", 0)];
    assert_eq!(found, expected.map(|(name, violated)| (Some(name), Some(violated))));
    assert_eq!(emulators(&site), [0; 0]);
}
