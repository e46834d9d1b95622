//! There is one way to start a program: `trust::program`, which decides where programs are searched.
//! This compares that with the sources.

use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use workspace::{crates, root};

mod workspace;

/// The finder itself.
const FINDER: &str = "trust/src/program.rs";

/// Who may start a program as it is given, by no search of kurabe's: what the user typed, what a guest
/// is booted for, and a copy of kurabe itself.
const AS_GIVEN: [&str; 3] =
    ["kurabe/trial/src/command.rs", "kurabe/guest/src/inside.rs", "kurabe/trial/src/user.rs"];

/// What starts programs in a file outside of its tests.
#[derive(Default)]
struct Started {
    /// The function that is being read.
    function: String,
    /// Functions that name `Command::new` of `std::process`.
    directly: Vec<String>,
    as_given: Vec<String>,
    /// Functions that name another function of the system that starts a program.
    otherwise: Vec<String>,
    is_of_clap: bool,
}

/// Functions of libc, nix and rustix that start a program.
const STARTING: [&str; 14] = [
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "execveat",
    "execl",
    "execle",
    "execlp",
    "fexecve",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "vfork",
];

impl Visit<'_> for Started {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        // Another type of that name.
        let text = quoted(&item.tree);
        self.is_of_clap |= text.starts_with("clap") && text.contains("Command");
        visit::visit_item_use(self, item);
    }

    fn visit_signature(&mut self, signature: &syn::Signature) {
        self.function = signature.ident.to_string();
        visit::visit_signature(self, signature);
    }

    fn visit_expr_path(&mut self, path: &syn::ExprPath) {
        let words: Vec<String> =
            path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let function = self.function.clone();
        match words[..] {
            [.., "Command", "new"] => self.directly.push(function),
            [.., "as_given"] => self.as_given.push(function),
            ["libc" | "nix" | "rustix" | "unistd" | "runtime" | "spawn", .., last]
                if STARTING.contains(&last) =>
            {
                self.otherwise.push(function);
            }
            _ => {}
        }
        visit::visit_expr_path(self, path);
    }
}

fn is_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
}

/// The words of a `use` item, joined.
fn quoted(tree: &syn::UseTree) -> String {
    match tree {
        syn::UseTree::Path(path) => format!("{}::{}", path.ident, quoted(&path.tree)),
        syn::UseTree::Group(group) => group.items.iter().map(quoted).collect::<Vec<_>>().join(","),
        syn::UseTree::Name(name) => name.ident.to_string(),
        syn::UseTree::Rename(name) => name.ident.to_string(),
        syn::UseTree::Glob(_) => "*".into(),
    }
}

fn started(text: &str) -> Started {
    let mut started = Started::default();
    started.visit_file(&syn::parse_file(text).unwrap());
    if started.is_of_clap {
        started.directly.clear();
    }
    started
}

/// All sources below a directory but tests in files of their own.
fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        let is_test = entry.file_stem().is_some_and(|name| name == "tests");
        if entry.is_dir() && !is_test {
            sources(&entry, into);
        } else if entry.extension().is_some_and(|extension| extension == "rs") && !is_test {
            into.push(entry);
        }
    }
}

#[test]
fn programs_are_found_and_started_in_one_place() {
    let planted = started(
        "use std::process::Command;\n\
         fn a() { Command::new(\"mkfs.ext4\"); }\n\
         fn b() { std::process::Command::new(\"sh\"); }\n\
         fn c() { names.map(Command::new); }\n\
         fn d() { program::as_given(\"x\"); unsafe { libc::execvp(a, b) }; }\n\
         #[cfg(test)] mod tests { fn e() { Command::new(\"true\"); } }\n",
    );
    assert_eq!(planted.directly, ["a", "b", "c"], "what is planted is seen");
    assert_eq!((planted.as_given, planted.otherwise), (vec!["d".into()], vec!["d".into()]));

    let mut files = Vec::new();
    for entry in crates().values().map(|directory| root().join(directory)) {
        if entry.join("src").is_dir() {
            sources(&entry.join("src"), &mut files);
        }
    }
    assert!(files.len() > 200, "{}", files.len());
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let Started { directly, as_given, otherwise, .. } =
            started(&fs::read_to_string(&file).unwrap());
        let directly = directly.iter().filter(|_| name != FINDER);
        let as_given = as_given.iter().filter(|_| !AS_GIVEN.contains(&name.as_str()));
        found.extend(
            directly
                .chain(as_given)
                .chain(&otherwise)
                .map(|function| format!("{name}: {function}")),
        );
    }
    assert_eq!(found, [""; 0], "start programs by trust::program::command");
}
