//! Which crate may depend on which: the table of ARCHITECTURE.md, compared with the manifests. And
//! within a crate: no circle of imports crosses folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use workspace::{crates, root};

mod workspace;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The words between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_string)
}

/// The rows of the table of crates: the crate, and what it may depend on.
fn documented() -> Arrows {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let crates = page.split("\n## ").find(|part| part.starts_with("Crates")).expect("a table");
    let rows = crates.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let name = quoted(cells.first()?).next()?;
        Some((name, quoted(cells.get(2)?).collect()))
    });
    rows.collect()
}

/// The workspace's crates that each manifest names outside of its tests.
fn declared() -> Arrows {
    let crates = crates();
    let arrows = crates.iter().map(|(name, directory)| {
        let path = root().join(directory).join("Cargo.toml");
        let manifest = fs::read_to_string(path).unwrap();
        let mut section = "";
        let mut named = BTreeSet::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let word = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if section == "[dependencies]" && crates.contains_key(word) {
                named.insert(word.to_string());
            }
        }
        (name.clone(), named)
    });
    arrows.collect()
}

#[test]
fn crates_depend_on_what_the_architecture_says() {
    assert_eq!(declared(), documented());
}

#[test]
fn no_arrow_runs_backwards() {
    let arrows = declared();
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    while placed.len() < arrows.len() {
        let next = arrows.iter().find(|(name, below)| {
            !placed.contains(name.as_str()) && below.iter().all(|one| placed.contains(one.as_str()))
        });
        let (name, _) = next.unwrap_or_else(|| panic!("a circle above {placed:?}: {arrows:#?}"));
        placed.insert(name);
    }
    // What must never be known, however the table changes.
    let never = [("lab", "workloads"), ("workloads", "lab"), ("report", "trial"), ("lump", "lab")];
    for (name, other) in never {
        assert!(!arrows[name].contains(other), "{name} knows {other}");
    }
}

/// The paths that a file names outside of its tests. What stands in macros is not seen.
#[derive(Default)]
struct Named(Vec<Vec<String>>);

impl Visit<'_> for Named {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        let is_test = module.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
        });
        if !is_test {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        self.branch(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

impl Named {
    fn branch(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.branch(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.branch(tree, before));
            }
            syn::UseTree::Name(name) => self.leaf(&name.ident, before),
            syn::UseTree::Rename(name) => self.leaf(&name.ident, before),
            syn::UseTree::Glob(_) => self.0.push(before.clone()),
        }
    }

    fn leaf(&mut self, name: &syn::Ident, before: &[String]) {
        self.0.push(before.iter().cloned().chain([name.to_string()]).collect());
    }
}

/// The modules of a crate, by their path in it: `["device", "layer"]`; the root has none.
type Modules = BTreeMap<Vec<String>, Vec<Vec<String>>>;

fn modules(source: &Path, at: &[String], into: &mut Modules) {
    for entry in fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_stem().unwrap().to_str().unwrap().to_string();
        let mut path = at.to_vec();
        match name.as_str() {
            "tests" => continue,
            "lib" | "main" | "mod" => {}
            _ => path.push(name),
        }
        if entry.is_dir() {
            modules(&entry, &path, into);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let mut named = Named::default();
            named.visit_file(&syn::parse_file(&fs::read_to_string(&entry).unwrap()).unwrap());
            into.entry(path).or_default().extend(named.0);
        }
    }
}

/// The modules of its own crate that each module imports from.
fn imports(modules: &Modules) -> BTreeMap<&[String], BTreeSet<&[String]>> {
    let of = |at: &[String], path: &[String]| {
        let words = path.iter().map(String::as_str);
        let mut full = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => at.to_vec(),
            _ => return None,
        };
        for word in words {
            match word {
                "crate" | "self" => {}
                "super" => drop(full.pop()),
                word => full.push(word.to_string()),
            }
        }
        while !modules.contains_key(&full) {
            full.pop();
        }
        let (found, _) = modules.get_key_value(&full).unwrap();
        (found != at).then_some(found.as_slice())
    };
    let all = modules
        .iter()
        .map(|(at, named)| (at.as_slice(), named.iter().filter_map(|path| of(at, path)).collect()));
    all.collect()
}

/// Everything that can be reached from `at` by imports.
fn reached<'a>(
    at: &'a [String],
    imports: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>,
) -> BTreeSet<&'a [String]> {
    let (mut found, mut open) = (BTreeSet::new(), vec![at]);
    while let Some(next) = open.pop() {
        open.extend(imports[next].iter().filter(|module| found.insert(**module)));
    }
    found
}

/// Circles whose modules do not lie in one folder. A module lies in the folder of its name where
/// there is one, as its children do.
fn circles(modules: &Modules) -> Vec<String> {
    let folder = |module: &[String]| {
        let has_children = modules.keys().any(|other| {
            other.len() > module.len() && !module.is_empty() && other.starts_with(module)
        });
        let end = if has_children { module.len() } else { module.len().saturating_sub(1) };
        module[..end].to_vec()
    };
    let imports = imports(modules);
    let reach: BTreeMap<_, _> = imports.keys().map(|at| (*at, reached(at, &imports))).collect();
    let mut found = BTreeSet::new();
    for at in imports.keys() {
        let circle: BTreeSet<String> = reach[at]
            .iter()
            .filter(|other| reach[**other].contains(at))
            .map(|module| module.join("/"))
            .collect();
        let of = |path: &String| folder(&path.split('/').map(str::to_string).collect::<Vec<_>>());
        if circle.iter().map(of).collect::<BTreeSet<_>>().len() > 1 {
            found.insert(circle);
        }
    }
    found.iter().map(|circle| format!("{circle:?}")).collect()
}

#[test]
fn no_circle_of_imports_crosses_folders() {
    let parsed = |text: &str| {
        let mut named = Named::default();
        named.visit_file(&syn::parse_file(text).unwrap());
        named.0
    };
    let planted: Modules = [
        (vec!["a".into()], parsed("use crate::b::inner::Thing;")),
        (vec!["b".into()], Vec::new()),
        (vec!["b".into(), "inner".into()], parsed("fn f() { crate::a::g(); }")),
    ]
    .into();
    assert_eq!(circles(&planted), [r#"{"a", "b/inner"}"#], "a circle would be seen");
    for (name, directory) in crates() {
        let source = root().join(directory).join("src");
        // A crate without a source of its own compiles that of another one.
        if !source.exists() {
            continue;
        }
        let mut found = Modules::new();
        modules(&source, &[], &mut found);
        assert!(found.len() > 1, "{name}");
        assert_eq!(circles(&found), [""; 0], "of {name}");
    }
}

/// Circles of modules of which none lies within another: a module and those that it is made of are one. A way
/// through what a module above them hands on is not seen.
fn circles_of_siblings(modules: &Modules) -> BTreeSet<String> {
    let mut imports = imports(modules);
    for (at, others) in &mut imports {
        others.retain(|other| !other.starts_with(at) && !at.starts_with(other));
    }
    let reach: BTreeMap<_, _> = imports.keys().map(|at| (*at, reached(at, &imports))).collect();
    let circle = |at: &&[String]| {
        let back = reach[*at].iter().filter(|other| reach[**other].contains(*at));
        back.map(|module| module.join("/")).collect::<Vec<_>>().join(" ")
    };
    imports.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// The circles that there are, each with why it is left. Whoever makes one less takes its line out.
const CIRCLES: [(&str, &str); 19] = [
    (
        "block: claim/identity claim/openers claim/relatives claim/system",
        "who holds a disk is asked of its relatives too, which are found by what they hold",
    ),
    ("disks: picture trace", "the picture of a trace is drawn while it is recorded"),
    (
        "kurabe: environment/aged environment/preflight environment/processes",
        "a file system is aged by a trial, and a trial begins on an aged one",
    ),
    (
        "kurabe: environment/guest environment/nodes",
        "a node is a guest; the environment of guests runs both",
    ),
    (
        "kurabe: power_failures/crash power_failures/crash_result power_failures/crash_shards power_failures/crash_text power_failures/node_death",
        "one command: its flags, result, words, shards and the death of a node",
    ),
    (
        "lab: analysis/cost analysis/exploratory analysis/primary analysis/samples analysis/slices analysis/zero",
        "samples choose the ratios that the others take from them",
    ),
    ("lab: record slice", "a record has its slices, and their mean is its phases"),
    (
        "lab: statistics/compare statistics/location statistics/modes statistics/summary",
        "the parts of a comparison have its types: interval, correction, modes",
    ),
    (
        "lump: checkpoint commit engine extent gather geometry journal medium metrics recovery store window",
        "one store, whose parts share its state",
    ),
    ("minfs: cli mounting tools", "the mount is one of the tools"),
    (
        "minfs: file flushes inode lengths medium shared volume",
        "one volume, whose parts share its state",
    ),
    ("publications: beside picture", "a picture has the rows of the table that it is next to"),
    (
        "publications: measured table",
        "a published table says by which quantity of ours it is measured",
    ),
    (
        "report: checks tables",
        "the ranking has a column of checks, whose table has the ranking's order",
    ),
    ("trial: command tool workload", "a tool and a workload are commands, bounded in one place"),
    (
        "trial: crash/bench crash/judge",
        "a state is decided about on a bench, which asks for the reason",
    ),
    (
        "workloads: dbench/drift dbench/monitor dbench/replay",
        "the monitor measures how far the replay drifts",
    ),
    (
        "workloads: fio/groups fio/run fio/verify",
        "three readings of one job, by each other's rules",
    ),
    (
        "workloads: postgres server tool",
        "where a program of PostgreSQL is, its driver knows, which starts it as a tool",
    ),
];

#[test]
fn circles_between_modules_of_one_folder_are_known() {
    let mut found = BTreeSet::new();
    for (name, directory) in crates() {
        let source = root().join(directory).join("src");
        if !source.exists() {
            continue;
        }
        let mut all = Modules::new();
        modules(&source, &[], &mut all);
        found.extend(
            circles_of_siblings(&all).into_iter().map(|circle| format!("{name}: {circle}")),
        );
    }
    let known: BTreeSet<String> = CIRCLES.map(|(circle, _)| circle.to_string()).into();
    assert_eq!(found, known);
}

/// The sources in which one of these texts is found, but for files of tests.
fn sources_with(texts: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for directory in crates().values() {
        let mut directories = vec![root().join(directory).join("src")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if !path.ends_with("tests.rs") {
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    if texts.iter().any(|wanted| text.contains(wanted)) {
                        let below = path.strip_prefix(root()).unwrap();
                        found.insert(below.display().to_string());
                    }
                }
            }
        }
    }
    found
}

/// The standard library recurses, with a descriptor for each directory: a workload can nest more of them
/// than there is stack.
#[test]
fn trees_are_removed_by_trust_alone() {
    let known = [
        // A ledger's directory in a test.
        "kurabe/trial/src/ledger.rs",
        // Results of a test.
        "kurabe/lab/src/result/tests.rs",
    ];
    let found = sources_with(&["remove_dir_all"]);
    let unknown: Vec<_> = found.iter().filter(|path| !known.contains(&path.as_str())).collect();
    assert!(unknown.is_empty(), "use trust::tree::remove in {unknown:?}");
}

/// The clock on the wall is set by hand, by NTP and by whoever resumes a machine. It says when something
/// began and gives a file its time, nothing else: what is measured, waited for or decided goes by the
/// monotonic clock.
#[test]
fn the_clock_on_the_wall_is_asked_only_for_moments_that_are_recorded() {
    let clocks = ["SystemTime::now", "Timestamp::now", "Zoned::now", "Realtime", "CLOCK_REALTIME"];
    let found = sources_with(&clocks);
    let known = [
        // When a trial or a session began.
        "kurabe/command/src/environment/guest.rs",
        "kurabe/command/src/environment/machines.rs",
        "kurabe/command/src/environment/processes.rs",
        "kurabe/command/src/environment/ssh.rs",
        "kurabe/command/src/power_failures/crash_result.rs",
        "kurabe/command/src/session.rs",
        "kurabe/trial/src/carry.rs",
        "kurabe/trial/src/crash.rs",
        // The name of a result, which another number follows where it is taken.
        "kurabe/command/src/request.rs",
        // The head of a log of histograms.
        "kurabe/workloads/src/kind.rs",
        // Times of files.
        "minfs/src/fuse/served.rs",
        "minfs/src/shared.rs",
    ];
    assert_eq!(found, known.map(String::from).into());
}

/// Many a sh leaves out what is to be done at EXIT when a signal ends it.
#[test]
fn scripts_that_clean_up_do_so_after_a_signal_too() {
    for entry in fs::read_dir(root().join("scripts")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let cleans = text.lines().any(|line| line.contains("trap ") && line.ends_with(" EXIT"));
        assert!(!cleans || text.contains("INT TERM"), "{}", path.display());
    }
}
