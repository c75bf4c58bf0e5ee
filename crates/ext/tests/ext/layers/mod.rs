//! Checks the layers inside the crate: parses its source files and compares what they use with the diagram in
//! `ARCHITECTURE.md` ("Inside `ext`"). A file may use its own layer and those below. Also limits the size of
//! circles.
//!
//! A file uses what it imports or writes out as a path, and the files with the methods that it calls. The
//! type of a receiver is not known: it may be each type that the file names, or a type that such a type
//! derefs to. Only layers are told apart from other types, by the names of their variables. Types whose name
//! is declared more than once are left out: each has one file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

mod types;

use types::Types;

/// The largest allowed circle, in files.
const MAX_CYCLE: usize = 10;

/// A path of names, from the root of the crate.
type Names = Vec<String>;

/// The files of the crate, tests excluded.
struct Sources {
    /// Each module's text, without comments and without the tests at its end.
    files: BTreeMap<Names, String>,
    /// Re-exports: module and name, and the re-exported path as written in the source.
    reexports: BTreeMap<(Names, String), Names>,
}

fn names(path: &str) -> Names {
    path.split("::")
        .map(|name| name.trim().to_owned())
        .collect()
}

fn source_files(dir: &Path, module: &[String], found: &mut BTreeMap<Names, String>) {
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.expect("a file name in UTF-8").to_owned();
        let mut module = module.to_vec();
        if !matches!(stem.as_str(), "mod" | "lib") {
            module.push(stem);
        }
        if path.is_dir() {
            source_files(&path, &module, found);
        } else {
            let text = fs::read_to_string(&path).expect("a source file");
            let lines = text.lines().map(|line| match line.find("//") {
                Some(at) => &line[..at],
                None => line,
            });
            let text: String = lines.flat_map(|line| [line, "\n"]).collect();
            let tests = text.find("#[cfg(test)]\nmod tests {");
            found.insert(module, text[..tests.unwrap_or(text.len())].to_owned());
        }
    }
}

/// The paths of a `use` tree, one for each name; `as` is dropped.
fn paths(tree: &str, before: &str, found: &mut Vec<Names>) {
    let tree = tree.trim();
    if tree.is_empty() {
        return;
    }
    let Some((head, list)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        found.push(names(&format!("{before}{path}")));
        return;
    };
    let before = format!("{before}{}", head.trim());
    let list = list.strip_suffix('}').expect("a list of a use ends");
    let (mut depth, mut start) = (0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                paths(&list[start..at], &before, found);
                start = at + 1;
            }
            _ => {}
        }
    }
    paths(&list[start..], &before, found);
}

/// The paths that a file imports, and whether each is re-exported; and the text without the imports.
fn uses(text: &str) -> (Vec<(Names, bool)>, String) {
    let (mut found, mut rest) = (Vec::new(), String::new());
    let mut left = text;
    while let Some(at) = left.find("use ") {
        let (before, behind) = left.split_at(at);
        let line = before.rsplit('\n').next().unwrap_or_default().trim();
        let is_public = line.starts_with("pub");
        rest.push_str(before);
        if !line.is_empty() && !is_public {
            rest.push_str("use ");
            left = &behind[4..];
            continue;
        }
        let (tree, behind) = behind[4..].split_once(';').expect("a use ends");
        let mut all = Vec::new();
        paths(tree, "", &mut all);
        found.extend(all.into_iter().map(|path| (path, is_public)));
        left = behind;
    }
    rest.push_str(left);
    (found, rest)
}

/// Paths that begin at the crate, at a module above, or at one of `children`, outside of a `use`.
fn written_out(rest: &str, children: &BTreeSet<&String>) -> Vec<Names> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = rest.split(|c| !is_name(c));
    let paths = words.filter(|word| word.contains("::")).map(names);
    paths
        .filter(|path| {
            matches!(path[0].as_str(), "crate" | "super" | "self") || children.contains(&path[0])
        })
        .collect()
}

/// The modules that a file declares for tests only.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    let declared = text.split("#[cfg(test)]\n").skip(1);
    declared.filter_map(|behind| {
        let line = behind.lines().next()?.trim_start();
        let name = line.split_once("mod ")?.1.strip_suffix(';')?;
        Some(name)
    })
}

impl Sources {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = BTreeMap::new();
        source_files(&root, &[], &mut files);
        let tests: Vec<Names> = files
            .iter()
            .flat_map(|(module, text)| {
                test_modules(text).map(|name| [module.as_slice(), &[name.to_owned()]].concat())
            })
            .collect();
        files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        let mut reexports = BTreeMap::new();
        for (module, text) in &files {
            for (path, is_public) in uses(text).0 {
                let name = path.last().expect("a path has names").clone();
                if is_public {
                    reexports.insert((module.clone(), name), path);
                }
            }
        }
        files.retain(|module, _| !module.is_empty());
        Self { files, reexports }
    }

    /// The file that defines the item that `path`, written in `module`, refers to; `None` for an item of
    /// another crate.
    fn file_of(&self, module: &[String], path: &[String], steps: usize) -> Option<Names> {
        let (mut at, mut rest) = match path.first().map(String::as_str) {
            Some("crate") => (Names::new(), &path[1..]),
            Some("self") => (module.to_vec(), &path[1..]),
            Some("super") => (module.to_vec(), path),
            _ => {
                let child: Names = [module, &path[..1]].concat();
                if !self.files.contains_key(&child) {
                    return None;
                }
                (module.to_vec(), path)
            }
        };
        while rest.first().is_some_and(|name| name == "super") {
            at.pop();
            rest = &rest[1..];
        }
        while let Some(name) = rest.first() {
            let child: Names = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.files.contains_key(&child) {
                (at, rest) = (child, &rest[1..]);
                continue;
            }
            let on = self.reexports.get(&(at.clone(), name.clone()));
            if let Some(on) = on.filter(|_| steps > 0) {
                return self.file_of(&at, on, steps - 1).or(Some(at));
            }
            break;
        }
        (!at.is_empty()).then_some(at)
    }

    /// The files that each file uses.
    fn graph(&self) -> BTreeMap<Names, BTreeSet<Names>> {
        let mut graph = BTreeMap::new();
        let types = Types::read(&self.files);
        for (module, text) in &self.files {
            let (used, rest) = uses(text);
            let below = self
                .files
                .keys()
                .filter(|other| other.len() == module.len() + 1 && other.starts_with(module));
            let children = below.filter_map(|child| child.last()).collect();
            let words: BTreeSet<&str> = rest
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .collect();
            // A re-export alone does not count as a use.
            let used = used.into_iter().filter(|(path, is_public)| {
                !is_public || words.contains(path.last().expect("a path has names").as_str())
            });
            let all = used
                .map(|(path, _)| path)
                .chain(written_out(&rest, &children));
            let all: Vec<(Names, Names)> = all
                .filter_map(|path| Some((self.file_of(module, &path, 4)?, path)))
                .collect();
            let named = all.iter().flat_map(|(_, path)| path).map(String::as_str);
            let named = named.chain(types.declared_in(module));
            let mut files: BTreeSet<Names> =
                types.called_by(&rest, named).into_iter().cloned().collect();
            files.extend(all.into_iter().map(|(file, _)| file));
            files.remove(module);
            graph.insert(module.clone(), files);
        }
        graph
    }
}

/// All files that `from` uses, directly or not.
fn reached(graph: &BTreeMap<Names, BTreeSet<Names>>, from: &Names) -> BTreeSet<Names> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(next) = left.pop() {
        for file in graph.get(&next).into_iter().flatten() {
            if seen.insert(file.clone()) {
                left.push(file.clone());
            }
        }
    }
    seen
}

/// The diagram in `ARCHITECTURE.md`: the layer of each module; the lowest is 0.
fn picture() -> BTreeMap<Names, (usize, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let text = fs::read_to_string(path).expect("ARCHITECTURE.md");
    let section = text
        .split("\n## Inside `ext`\n")
        .nth(1)
        .expect("the section `Inside ext`");
    let block = section.split("```").nth(1).expect("a diagram");
    let rows: Vec<&str> = block
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let mut layers = BTreeMap::new();
    for (layer, row) in rows.iter().rev().enumerate() {
        let mut words = row.split_whitespace();
        let name = words.next().expect("a layer has a name");
        for module in words {
            let old = layers.insert(names(module), (layer, name.to_owned()));
            assert!(old.is_none(), "{module} is in the diagram twice");
        }
    }
    layers
}

/// The layer of a file: its own in the diagram, or that of the module that contains it.
fn layer_of(layers: &BTreeMap<Names, (usize, String)>, file: &[String]) -> (usize, String) {
    let own = (1..=file.len())
        .rev()
        .find_map(|len| layers.get(&file[..len]));
    own.cloned()
        .unwrap_or_else(|| panic!("{} is in no layer of the diagram", file.join("::")))
}

#[test]
fn files_use_their_own_layer_and_those_below() {
    let layers = picture();
    let sources = Sources::read();
    for module in layers.keys() {
        let known = sources.files.contains_key(module);
        assert!(
            known,
            "{} is in the diagram but does not exist",
            module.join("::")
        );
    }
    let mut wrong = Vec::new();
    for (file, used) in sources.graph() {
        let (own, own_name) = layer_of(&layers, &file);
        for other in used {
            let (layer, name) = layer_of(&layers, &other);
            if layer > own {
                let (file, other) = (file.join("::"), other.join("::"));
                wrong.push(format!("{file} ({own_name}) uses {other} ({name})"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "from a higher layer:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_circle_is_large() {
    let graph = Sources::read().graph();
    let reach: BTreeMap<&Names, BTreeSet<Names>> = graph
        .keys()
        .map(|file| (file, reached(&graph, file)))
        .collect();
    let circles: BTreeSet<BTreeSet<&Names>> = graph
        .keys()
        .map(|file| {
            let back =
                |other: &&Names| reach[file].contains(*other) && reach[*other].contains(file);
            graph.keys().filter(back).collect()
        })
        .filter(|circle: &BTreeSet<&Names>| circle.len() > 1)
        .collect();
    let largest = circles.iter().max_by_key(|circle| circle.len());
    let largest: Vec<String> = largest
        .into_iter()
        .flatten()
        .map(|file| file.join("::"))
        .collect();
    println!(
        "{} files, the largest circle has {}: {}",
        graph.len(),
        largest.len(),
        largest.join(", ")
    );
    assert!(graph.len() > 100, "the files were not found");
    assert!(
        !largest.is_empty(),
        "no circle was found, although there are some"
    );
    assert!(largest.len() <= MAX_CYCLE, "{largest:?}");
}
