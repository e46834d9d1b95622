//! fio, dbench, bonnie++ and servers are started in two places, which see to it that they are in an enclosure:
//! compared with the sources, so that no third way appears.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use workspace::{crates, root};

mod workspace;

/// The programs that do as somebody's job says.
const PROGRAMS: [&str; 12] = [
    "fio",
    "dbench",
    "bonnie++",
    "postgres",
    "initdb",
    "pgbench",
    "redis-server",
    "mariadbd",
    "mariadb-install-db",
    "sysbench",
    "db_bench",
    "ldb",
];

/// The functions of the crate `workloads` that make a command, with what they start.
const STARTERS: [(&str, &str, &str); 11] = [
    ("age/place.rs", "run", "git"),
    ("enclosure.rs", "refusal", "a process that never becomes a program"),
    ("server.rs", "start_told", "a server, in the enclosure that its load is in already"),
    ("tool.rs", "ask", "a tool that is kept in, in an enclosure without a contender"),
    ("tool.rs", "command", "a tool that is not kept in"),
    ("tool.rs", "run_kept_in", "a tool that is kept in, in its enclosure"),
    ("tool.rs", "version", "any tool, with no job"),
    ("tree/archive.rs", "inspect", "tar"),
    ("tree/run.rs", "delete_each", "rm"),
    ("tree/run.rs", "phase", "rm"),
    ("tree/run.rs", "unpack", "tar"),
];

/// What a file starts, outside of its tests.
#[derive(Default)]
struct Starts {
    function: String,
    /// The functions that make a command.
    makers: BTreeSet<String>,
    /// Texts that are given to a function which starts or finds a program.
    named: BTreeSet<String>,
}

impl Starts {
    fn of(path: &Path) -> Starts {
        let mut starts = Starts::default();
        starts.visit_file(&syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap());
        starts
    }

    fn within(&mut self, name: &syn::Ident, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.function, name.to_string());
        visit(self);
        self.function = outer;
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

impl Visit<'_> for Starts {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &syn::ItemFn) {
        self.within(&function.sig.ident, |starts| visit::visit_item_fn(starts, function));
    }

    fn visit_impl_item_fn(&mut self, function: &syn::ImplItemFn) {
        self.within(&function.sig.ident, |starts| visit::visit_impl_item_fn(starts, function));
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        let last: Vec<&str> = names.iter().map(String::as_str).collect();
        if let [.., "Command", "new"] | [.., "program", "command" | "itself" | "as_given"] =
            last[..]
        {
            self.makers.insert(self.function.clone());
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &syn::ExprMethodCall) {
        // Of a program that was found, or of a tool.
        if call.method == "command" && call.args.is_empty() {
            self.makers.insert(self.function.clone());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &syn::ExprCall) {
        let names: Vec<String> = match &*call.func {
            syn::Expr::Path(path) => {
                path.path.segments.iter().map(|one| one.ident.to_string()).collect()
            }
            _ => Vec::new(),
        };
        let last: Vec<&str> = names.iter().map(String::as_str).collect();
        if let [.., "Command" | "Tool", "new"]
        | [.., "find" | "locate" | "as_given" | "execvp"]
        | [.., "program", "command"] = last[..]
        {
            for argument in &call.args {
                if let syn::Expr::Lit(literal) = argument
                    && let syn::Lit::Str(text) = &literal.lit
                {
                    self.named.insert(text.value());
                }
            }
        }
        visit::visit_expr_call(self, call);
    }
}

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true if path.ends_with("tests") => {}
            true => sources(&path, into),
            false if path.extension().is_some_and(|kind| kind == "rs") => into.push(path),
            false => {}
        }
    }
}

#[test]
fn the_crate_of_workloads_makes_commands_in_listed_functions_only() {
    let source = root().join("kurabe/workloads/src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let makers = files.iter().flat_map(|path| {
        let file = path.strip_prefix(&source).unwrap().display().to_string();
        Starts::of(path).makers.into_iter().map(move |function| (file.clone(), function))
    });
    let makers: BTreeSet<(String, String)> = makers.collect();
    let listed: BTreeSet<(String, String)> =
        STARTERS.map(|(file, function, _)| (file.into(), function.into())).into();
    assert_eq!(makers, listed, "start fio, dbench and bonnie++ by tool::run_kept_in or tool::ask");
}

#[test]
fn no_other_source_names_these_programs_to_start_them() {
    let mut files = Vec::new();
    for one in crates().values().map(|directory| root().join(directory).join("src")) {
        if one.is_dir() {
            sources(&one, &mut files);
        }
    }
    assert!(files.len() > 100, "the sources are elsewhere");
    for path in files {
        let named = Starts::of(&path).named;
        let found: Vec<_> = PROGRAMS.iter().filter(|program| named.contains(**program)).collect();
        assert!(found.is_empty(), "{} starts {found:?}", path.display());
    }
}

/// The check sees what it is to find.
#[test]
fn a_second_way_would_be_found() {
    let text = "fn helper() { std::process::Command::new(\"fio\").arg(\"x\"); }\n\
        #[cfg(test)] mod tests { fn other() { Command::new(\"dbench\"); } }";
    let mut starts = Starts::default();
    starts.visit_file(&syn::parse_file(text).unwrap());
    assert_eq!(starts.makers, BTreeSet::from(["helper".into()]));
    assert_eq!(starts.named, BTreeSet::from(["fio".into()]));
}
