//! No type of the workspace has many methods: inherent ones, over all of its `impl` blocks, read from the
//! sources. Methods of traits are not counted, as the trait decides about them. Types of the same name in one
//! crate are counted as one.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use throughline_testkit::sources;

/// The most methods that a type may have. There are no exceptions: split a larger type.
const MAX_METHODS: usize = 40;

/// The sources below a folder, without files and folders of tests.
fn source_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_test = |part: &OsStr| {
        ["tests", "tests.rs", "testing", "testing.rs"]
            .iter()
            .any(|name| part == *name)
    };
    let files = sources::files(folder, &["rs"]).into_iter();
    let folder = folder.to_owned();
    files.filter(move |file| {
        let below = file.strip_prefix(&folder).expect("a file below the folder");
        !below.iter().any(is_test)
    })
}

/// Adds the methods in a file. In a macro, those of `impl $of` count for each type that the macro is called
/// with.
fn count(text: &str, methods: &mut BTreeMap<String, usize>) {
    let text = text.split("#[cfg(test)]\nmod tests {").next();
    let mut macro_name = None;
    let mut block: Option<(usize, String)> = None;
    let mut by_macro: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.unwrap_or_default().lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(name) = trimmed.strip_prefix("macro_rules! ") {
            macro_name = name.split(' ').next().map(str::to_owned);
        }
        if let Some(name) = sources::implemented(trimmed) {
            block = Some((indent, name.to_owned()));
        }
        let Some((outer, of)) = &block else {
            let call = trimmed.split_once("!(");
            let called = call.and_then(|(name, of)| Some((by_macro.get(name)?, of)));
            if let Some((count, of)) = called {
                let names = of.trim_end_matches([')', ';']).split(',').map(str::trim);
                for name in names {
                    *methods.entry(name.to_owned()).or_default() += count;
                }
            }
            continue;
        };
        if indent == *outer && trimmed == "}" {
            block = None;
        } else if indent == outer + 4 && sources::function(trimmed).is_some() {
            let counted = match (of.starts_with('$'), &macro_name) {
                (true, Some(name)) => by_macro.entry(name.clone()),
                _ => methods.entry(of.clone()),
            };
            *counted.or_default() += 1;
        }
    }
}

#[test]
fn no_type_has_many_methods() {
    let root = sources::root();
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root.join("crates"))
        .expect("the crates are there")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    folders.extend([root.join("testing"), root.join("testing/models")]);
    assert!(folders.len() > 10, "the crates were not found");
    let mut wrong = Vec::new();
    for folder in folders {
        let name = folder.file_name().and_then(|name| name.to_str());
        let name = name.expect("a name in UTF-8");
        let mut methods = BTreeMap::new();
        for file in source_files(&folder.join("src")) {
            count(&sources::text(&file), &mut methods);
        }
        assert!(!methods.is_empty(), "no methods were found in {name}");
        for (of, count) in methods {
            if count > MAX_METHODS {
                wrong.push(format!("{name}: {of} has {count} methods"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn methods_are_counted() {
    let text = "
impl<F: Fn(&str) -> u8> Name<F> {
    pub fn one(&self) {
        fn inner() {}
    }
    pub(crate) const fn two() {}
    pub(in crate::methods::x) fn three() {}
}
impl Trait for Name {
    fn four() {}
}
macro_rules! by_path {
    ($of:ty) => {
        impl $of {
            pub fn five() {}
        }
    };
}
by_path!(Name);
by_path!(Other);
#[cfg(test)]
mod tests {
impl Name {
    fn six() {}
}
";
    let mut methods = BTreeMap::new();
    count(text, &mut methods);
    let expected = [("Name".to_owned(), 4), ("Other".to_owned(), 1)];
    assert_eq!(methods, BTreeMap::from(expected));
}
