//! Nodes that are threads, with directories of their own: what one sees of the other is what a thread copies.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Barrier, Mutex};

use super::channel::Channel;
use super::*;

/// Two nodes of one process, which are threads.
struct Together<'a> {
    member: QuestionNode,
    barrier: &'a Barrier,
    said: &'a Mutex<Vec<Vec<u8>>>,
    meetings: u32,
    /// Called at each meeting of a batch, which has four, while both wait.
    carry: &'a (dyn Fn(u32) + Sync),
}

impl Meet for Together<'_> {
    fn meet(&mut self, said: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.said.lock().unwrap()[self.member.number as usize - 1] = said.to_vec();
        self.barrier.wait();
        let all = self.said.lock().unwrap().clone();
        if self.member.number == 1 {
            (self.carry)(self.meetings % 4);
        }
        self.meetings += 1;
        self.barrier.wait();
        Ok(all)
    }
}

fn copy(from: &Path, to: &Path) {
    let names = |directory: &Path| -> BTreeSet<_> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    for gone in names(to).difference(&names(from)) {
        fs::remove_file(to.join(gone)).unwrap();
    }
    for name in names(from) {
        fs::write(to.join(&name), fs::read(from.join(&name)).unwrap()).unwrap();
    }
}

/// What both nodes found, each in a directory of its own.
fn two(directories: [&Path; 2], questions: u32, carry: &(dyn Fn(u32) + Sync)) -> Vec<Check> {
    let (barrier, said) = (Barrier::new(2), Mutex::new(vec![Vec::new(); 2]));
    let run = |number: u32| {
        // As a process has, which is who has a POSIX lock.
        crate::sys::own_file_table().unwrap();
        let member = QuestionNode { number, nodes: 2 };
        let mut meet = Together { member, barrier: &barrier, said: &said, meetings: 0, carry };
        let asked =
            QuestionSet { questions, member, sort: None, wait_max: Duration::from_millis(5) };
        let directory = directories[number as usize - 1];
        ask(asked, directory, &mut meet, &AtomicBool::new(false)).unwrap()
    };
    let checks = |answers: Vec<Answers>| answers.into_iter().map(|one| one.check).collect();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| checks(run(2)));
        let one = scope.spawn(|| checks(run(1)));
        let mut all: Vec<Check> = one.join().unwrap();
        let other: Vec<Check> = other.join().unwrap();
        Check::add_all(&mut all, other);
        all
    })
}

#[test]
fn one_directory_keeps_every_promise() {
    let directory = tempfile::tempdir().unwrap();
    let checks = two([directory.path(); 2], 4 * QUESTIONS.len() as u32, &|_| ());
    assert_eq!(checks.len(), QUESTIONS.len());
    for check in &checks {
        assert_eq!((check.tried, check.violated), (4, 0), "{check:?}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The first node is the writer of all questions of the first turn. The second one sees what was prepared, and
/// nothing of the change.
#[test]
fn a_reader_that_keeps_the_old_state_is_caught_by_every_question() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths = [directories[0].path(), directories[1].path()];
    let carry = |meeting| {
        if meeting == 0 {
            copy(paths[0], paths[1]);
        }
    };
    let checks = two(paths, QUESTIONS.len() as u32, &carry);
    for check in &checks {
        assert_eq!((check.tried, check.violated), (1, 1), "{check:?}");
    }
    assert_eq!(checks[0].first.as_deref(), Some("question 0: the bytes are the old ones"));
}

#[test]
fn what_a_file_system_does_not_promise_is_marked_and_what_it_cannot_answer_is_not_asked() {
    let of = |name: &str, sort| {
        let question = QUESTIONS.iter().find(|one| one.name == name).unwrap();
        let check = question.unasked(sort).check;
        (check.not_promised, check.evidence.is_some())
    };
    assert_eq!(of("mmap", None), (false, false));
    assert_eq!(of("mmap", Some(Sort::Nfs)), (true, false));
    assert_eq!(of("mmap", Some(Sort::Smb)), (true, false));
    assert_eq!(of("close-to-open", Some(Sort::Nfs)), (false, false));
    assert_eq!(of("fcntl-lock", Some(Sort::Ocfs2)), (true, false));
    assert_eq!(of("fcntl-lock", Some(Sort::Gfs2)), (false, true));
    let asked = |sort| {
        let member = QuestionNode { number: 1, nodes: 2 };
        let asked = QuestionSet { questions: BATCH, member, sort, wait_max: WAIT_MAX };
        Batch::of(0..BATCH, asked, Path::new("/")).questions.len()
    };
    assert_eq!((asked(None), asked(Some(Sort::Gfs2))), (BATCH as usize, BATCH as usize - 2));
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Sort::of(directory.path()).unwrap(), None);
}

#[test]
fn what_comes_late_is_timed_and_what_never_comes_is_waited_for_a_few_times() {
    let wait_max = Duration::from_millis(20);
    let mut answers = Answers::default();
    let mut looks = 0;
    answers.judge(7, wait_max, || {
        looks += 1;
        (looks < 3).then(|| "old".into())
    });
    assert_eq!((answers.check.tried, answers.check.violated, looks), (1, 1, 3));
    assert_eq!(answers.check.first.as_deref(), Some("question 7: old"));
    assert!(answers.late_ns >= 2 * LOOK_INTERVAL.as_nanos() as u64);
    for _ in 0..100 {
        answers.judge(8, wait_max, || Some("never".into()));
    }
    assert_eq!((answers.check.tried, answers.check.violated), (101, 101));
    assert!(answers.late_ns >= wait_max.as_nanos() as u64);
    // What cannot come is not waited for.
    let mut once = Answers::default();
    once.judge(9, Duration::ZERO, || Some("both".into()));
    assert_eq!((once.check.violated, once.late_ns), (1, 0));
}

#[test]
fn what_two_did_at_once_is_judged_by_both() {
    let by_name = |name: &str| QUESTIONS.iter().find(|one| one.name == name).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let place = QuestionFiles::of(directory.path(), 0);
    let exclusive =
        |said| (by_name("exclusive-create").answer)(&place, &ChangeSeen { held: None, said });
    assert_eq!(exclusive([1, 0]).unwrap(), None);
    assert_eq!(exclusive([0, 1]).unwrap(), None);
    assert!(exclusive([1, 1]).unwrap().unwrap().contains("each of the two"));
    assert!(exclusive([0, 0]).unwrap().unwrap().contains("none of the two"));
    // A node that appends at an end that it remembers writes over the other one's records.
    let append = by_name("append");
    let answer = || (append.answer)(&place, &ChangeSeen { held: None, said: [0, 0] }).unwrap();
    (append.prepare)(&place).unwrap();
    (append.change)(&place, NodeRole::Writer).unwrap();
    assert_eq!(answer().unwrap(), "4 of 8 records are there, in 256 bytes");
    (append.change)(&place, NodeRole::Reader).unwrap();
    assert_eq!(answer(), None);
    (append.change)(&place, NodeRole::Reader).unwrap();
    assert_eq!(answer().unwrap(), "4 of 8 records are there, in 768 bytes");
}

#[test]
fn every_node_is_writer_and_reader() {
    for nodes in 2..=4 {
        let pairs: BTreeSet<[u32; 2]> = (0..2 * nodes).map(|batch| pair(batch, nodes)).collect();
        assert!(pairs.iter().all(|[writer, reader]| writer != reader));
        let readers: BTreeSet<u32> = pairs.iter().map(|pair| pair[1]).collect();
        assert_eq!(readers, (1..=nodes).collect());
        assert_eq!(pairs.len() as u32, if nodes == 2 { 2 } else { 2 * nodes });
    }
}

#[test]
fn nodes_hear_each_other_and_name_the_one_that_is_gone() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let said = Arc::new(Mutex::new(Vec::new()));
    let nodes: Vec<_> = (1..=3)
        .map(|number| {
            let said = said.clone();
            std::thread::spawn(move || {
                let member = QuestionNode { number, nodes: 3 };
                if number == 3 {
                    // Who has another secret is not taken for the second node.
                    let stranger = TcpStream::connect(("127.0.0.1", free));
                    stranger.and_then(|mut other| other.write_all(b"\x02other")).unwrap_or(());
                }
                let first = Ipv4Addr::LOCALHOST.into();
                let mut channel = Channel::open(member, first, free, "token").unwrap();
                let heard = channel.meet(&[number as u8 * 10, number as u8]).unwrap();
                said.lock().unwrap().push(heard);
                if number == 3 {
                    return Ok(Vec::new());
                }
                channel.meet(&[0])
            })
        })
        .collect();
    let ends: Vec<_> = nodes.into_iter().map(|node| node.join().unwrap()).collect();
    assert_eq!(*said.lock().unwrap(), vec![vec![vec![10, 1], vec![20, 2], vec![30, 3]]; 3]);
    assert!(ends[0].as_ref().unwrap_err().contains("node 3 is gone"), "{ends:?}");
    assert!(ends[1].as_ref().unwrap_err().contains("node 1 is gone"), "{ends:?}");
}
