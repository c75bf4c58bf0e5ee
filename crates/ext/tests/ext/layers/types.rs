//! Types, and the calls of their methods.

use std::collections::{BTreeMap, BTreeSet};

use throughline_testkit::sources;

use super::Names;

/// The calls in a text: of `name` on `receiver`, as in `self.receiver.name(`, `receiver().name::<`, and
/// `receiver::name(`.
fn calls(text: &str) -> BTreeSet<(&str, &str)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let all = text.match_indices(['.', ':']).filter_map(|(at, _)| {
        let (name, rest) = text[at + 1..].split_at(text[at + 1..].find(|c| !is_name(c))?);
        let is_call = rest.starts_with('(') || rest.starts_with("::<");
        let before = text[..at].trim_end_matches(|c: char| c.is_whitespace() || c == ':');
        let before = before.strip_suffix("()").unwrap_or(before);
        let receiver = before.rsplit(|c| !is_name(c)).next()?;
        (is_call && !name.is_empty()).then_some((receiver, name))
    });
    all.collect()
}

/// What is known of the crate's types.
pub(crate) struct Types {
    /// The files that declare each type.
    declared: BTreeMap<String, Vec<Names>>,
    /// The files of each method, by the name of the type and its own.
    methods: BTreeMap<String, BTreeMap<String, BTreeSet<Names>>>,
    /// The type that a type derefs to.
    derefs: BTreeMap<String, String>,
}

impl Types {
    pub(crate) fn read(files: &BTreeMap<Names, String>) -> Self {
        let mut declared: BTreeMap<String, Vec<Names>> = BTreeMap::new();
        let (mut methods, mut derefs) = (BTreeMap::new(), BTreeMap::new());
        for (module, text) in files {
            let mut of = None;
            for line in text.lines() {
                let words = line.split(|c: char| !c.is_alphanumeric());
                let mut words = words.skip_while(|word| !matches!(*word, "struct" | "enum"));
                if let (Some(_), Some(name)) = (words.next(), words.next()) {
                    declared
                        .entry(name.to_owned())
                        .or_default()
                        .push(module.clone());
                }
                of = match line {
                    "}" => None,
                    line => sources::implemented(line).map(str::to_owned).or(of),
                };
                let method = line.strip_prefix("    ").and_then(sources::function);
                if let (Some(of), Some(method)) = (&of, method) {
                    let of: &mut BTreeMap<_, BTreeSet<_>> = methods.entry(of.clone()).or_default();
                    let files = of.entry(method.to_owned()).or_default();
                    files.insert(module.clone());
                }
            }
            for deref in text.split("impl Deref for ").skip(1) {
                let (name, rest) = deref.split_once(" {").expect("the body of an impl");
                let target = rest.split_once("type Target = ").expect("a target").1;
                let target = target.split(';').next().expect("a type");
                derefs.insert(name.to_owned(), target.to_owned());
            }
        }
        methods.retain(|name, _| declared.get(name).is_some_and(|files| files.len() == 1));
        Self {
            declared,
            methods,
            derefs,
        }
    }

    pub(crate) fn declared_in(&self, module: &Names) -> impl Iterator<Item = &str> {
        let types = self.declared.iter();
        let here = types.filter(|(_, files)| files.contains(module));
        here.map(|(name, _)| name.as_str())
    }

    /// The files with the methods that a text calls, which names these types.
    pub(crate) fn called_by<'a>(
        &self,
        text: &str,
        named: impl IntoIterator<Item = &'a str>,
    ) -> BTreeSet<&Names> {
        let calls = calls(text);
        let mut files = BTreeSet::new();
        for first in named {
            let is_layer =
                self.derefs.contains_key(first) || self.derefs.values().any(|to| to == first);
            // A variable or field with a layer has the name `fs` everywhere, or that of the layer.
            let may_be = |receiver: &str| {
                let is_any = matches!(receiver, "self" | "Self") || receiver == first;
                let of_layer = receiver == "fs" || receiver == first.to_lowercase();
                is_any || is_layer == of_layer
            };
            let called = calls.iter().filter(|(receiver, _)| may_be(receiver));
            let mut left: BTreeSet<&str> = called.map(|(_, name)| *name).collect();
            let mut next = Some(first);
            while let Some(of) = next {
                // A method hides those of the same name further down.
                for (method, found) in self.methods.get(of).into_iter().flatten() {
                    if left.remove(method.as_str()) {
                        files.extend(found);
                    }
                }
                next = self.derefs.get(of).map(String::as_str);
            }
        }
        files
    }
}

#[test]
fn calls_of_methods_are_found() {
    let file = |name: &str, text: &str| (super::names(name), text.to_owned());
    let files = BTreeMap::from([
        file(
            "upper",
            "pub struct Upper(Lower);\nimpl Deref for Upper {\n    type Target = Lower;\n}",
        ),
        file(
            "lower",
            "pub struct Lower;\nimpl Lower {\n    fn both(&self) {}\n}",
        ),
        file(
            "lower::more",
            "impl Lower {\n    pub(crate) const fn one<T>() {}\n}",
        ),
        file(
            "other",
            "impl<'a> Upper {\n    pub(in crate::layers::x) unsafe fn both(&self) {}\n}",
        ),
        file("twice", "struct Twice;\nimpl Twice {\n    fn one() {}\n}"),
        file("twice::again", "struct Twice;"),
    ]);
    let types = Types::read(&files);
    let files = |text| -> Vec<String> {
        let named = ["Upper", "Lower", "Twice"].into_iter();
        let named = named.filter(|name| str::contains(text, name));
        let found = types.called_by(text, named).into_iter();
        found.map(|file| file.join("::")).collect()
    };
    assert_eq!(files("fn f(fs: &Upper) { fs.both(); }"), ["other"]);
    assert_eq!(
        files("fn f(fs: &Upper) { fs.one::<u8>(); }"),
        ["lower::more"]
    );
    assert_eq!(files("fn f(fs: &Lower) { fs.both(); }"), ["lower"]);
    assert_eq!(files("fn f() { Lower::one(); }"), ["lower::more"]);
    assert!(files("fn f(x: &Twice) { x.one(); }").is_empty());
    assert!(files("fn f(fs: &Lower) { fs.both; }").is_empty());
    assert!(files("fn f(fs: &Lower) { x.both(); }").is_empty());
}
