//! The header is what is made of the sources: their functions, structures and comments.
//!
//! The sources are read as text, as far as this crate writes them. What is not known stops the test, so that
//! nothing is left out of the header.

use std::fmt::Write as _;
use std::path::Path;

use regex::Regex;

const WIDTH: usize = 100;

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = made(root);
    let path = root.join("include/throughline.h");
    if std::env::var_os("THROUGHLINE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/throughline.h is not that of the sources. Make it anew: \
         THROUGHLINE_WRITE_HEADER=1 cargo test -p throughline-capi --test header"
    );
}

/// A function that is not in the header cannot be called from C.
#[test]
fn all_exported_functions_are_in_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = made(root);
    let mut count = 0;
    for entry in std::fs::read_dir(root.join("src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let exported = text.matches("#[unsafe(no_mangle)]").count();
        assert_eq!(
            exported,
            text.matches("extern \"C\" fn").count(),
            "all functions for C have their names"
        );
        count += exported;
    }
    assert!(count > 60, "{count}");
    assert_eq!(made.matches(");\n").count(), count);
}

/// What the sources have for the header, in the order of the modules.
#[derive(Default)]
struct Found {
    handles: Vec<Item>,
    structures: Vec<Item>,
    functions: Vec<Item>,
}

struct Item {
    name: String,
    /// The comment with the declaration.
    text: String,
}

fn made(root: &Path) -> String {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("it can be read");
    let modules = Regex::new(r"(?m)^mod (\w+);").unwrap();
    let mut found = Found::default();
    let library = read("src/lib.rs");
    for module in modules.captures_iter(&library) {
        found.read(&read(&format!("src/{}.rs", &module[1])));
    }
    found.handles.sort_by(|a, b| a.name.cmp(&b.name));
    let text = |items: &[Item]| -> String { items.iter().map(|item| &*item.text).collect() };
    format!(
        "{}\n\n#ifndef THROUGHLINE_H\n#define THROUGHLINE_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n\
         {}{}#ifdef __cplusplus\nextern \"C\" {{\n#endif // __cplusplus\n\n{}#ifdef __cplusplus\n\
         }}  // extern \"C\"\n#endif  // __cplusplus\n\n#endif  /* THROUGHLINE_H */\n",
        read("tests/head.txt"),
        text(&found.handles),
        text(&in_order(found.structures)),
        text(&found.functions),
    )
}

/// Each structure behind those that it holds.
fn in_order(mut left: Vec<Item>) -> Vec<Item> {
    let mut done = Vec::new();
    while !left.is_empty() {
        let names: Vec<_> = left
            .iter()
            .map(|item| format!("  {} ", item.name))
            .collect();
        let is_free = |item: &Item| !names.iter().any(|name| item.text.contains(name));
        let at = left.iter().position(is_free).expect("no circles");
        done.push(left.remove(at));
    }
    done
}

impl Found {
    fn read(&mut self, source: &str) {
        let item = Regex::new(concat!(
            r"(?m)(?P<comment>(?:^///.*\n)+)(?P<marks>(?:^#\[.*\]\n)*)^pub (?:",
            r"struct (?P<type>tl_\w+)(?P<body>[^;{]*;| \{[^}]*\}\n)",
            r#"|extern "C" fn (?P<function>\w+)\((?P<arguments>[^)]*)\)"#,
            r"(?: -> (?P<result>[^{]*))? \{)",
        ));
        let item = item.unwrap();
        let mut functions = 0;
        for found in item.captures_iter(source) {
            let part = |name: &str| found.name(name).map_or("", |part| part.as_str());
            let comment = part("comment").replace("///", "//");
            if let Some(name) = found.name("function") {
                functions += 1;
                let declared = declared(name.as_str(), part("arguments"), part("result"));
                self.functions
                    .push(item_of(name.as_str(), comment + &declared));
            } else if part("marks").contains("#[repr(C)]") {
                let name = part("type");
                let fields = fields(part("body"));
                let text = format!("{comment}typedef struct {{\n{fields}}} {name};\n");
                self.structures.push(item_of(name, text));
            } else {
                let name = part("type");
                let text = format!("{comment}typedef struct {name} {name};\n");
                self.handles.push(item_of(name, text));
            }
        }
        assert_eq!(
            functions,
            source.matches("#[unsafe(no_mangle)]").count(),
            "each exported function has a comment and an ordinary signature"
        );
    }
}

fn item_of(name: &str, mut text: String) -> Item {
    text.push('\n');
    Item {
        name: name.to_owned(),
        text,
    }
}

fn fields(body: &str) -> String {
    let array = Regex::new(r"^\[(.*); (\d+)\]$").unwrap();
    let mut text = String::new();
    for line in body.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            writeln!(text, "  //{comment}").unwrap();
        } else if let Some(field) = line.strip_prefix("pub ") {
            let (name, kind) = field.trim_end_matches(',').split_once(": ").unwrap();
            match array.captures(kind) {
                Some(of) => writeln!(text, "  {}[{}];", value(&of[1], name), &of[2]),
                None => writeln!(text, "  {};", value(kind, name)),
            }
            .unwrap();
        } else {
            assert!(
                matches!(line, "" | "{" | "}"),
                "a field that is not public: {line}"
            );
        }
    }
    text
}

/// On one line, or with one argument on each.
fn declared(name: &str, arguments: &str, result: &str) -> String {
    let arguments = arguments.split(',').map(str::trim);
    let arguments: Vec<String> = arguments
        .filter(|argument| !argument.is_empty())
        .map(|argument| {
            let (name, kind) = argument.split_once(": ").unwrap();
            value(kind, name)
        })
        .collect();
    let begin = match result.trim() {
        "" => format!("void {name}("),
        kind => format!("{}(", value(kind, name)),
    };
    if arguments.is_empty() {
        return format!("{begin}void);\n");
    }
    let line = format!("{begin}{});\n", arguments.join(", "));
    if line.trim_end().len() <= WIDTH {
        return line;
    }
    let space = format!(",\n{}", " ".repeat(begin.len()));
    format!("{begin}{});\n", arguments.join(&space))
}

/// The C declaration of a value of a type.
fn value(kind: &str, name: &str) -> String {
    let simple = match kind {
        "c_int" => "int",
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "f64" => "double",
        "Text<'_>" | "*const c_char" => "const char *",
        "Memory<'_>" => "const void *",
        "MemoryMut<'_>" => "void *",
        _ => "",
    };
    if simple.ends_with('*') {
        return format!("{simple}{name}");
    }
    if !simple.is_empty() {
        return format!("{simple} {name}");
    }
    const WRAPPED: [(&str, &str, &str, &str); 7] = [
        ("Option<&mut MaybeUninit<Box<", ">>>", "", "**"),
        ("Option<&mut MaybeUninit<", ">>", "", "*"),
        ("Option<&mut ", ">", "", "*"),
        ("Option<&", ">", "const ", "*"),
        ("Option<Box<", ">>", "", "*"),
        ("Box<", ">", "", "*"),
        ("", "", "", ""),
    ];
    for (begin, end, before, stars) in WRAPPED {
        let of = kind
            .strip_prefix(begin)
            .and_then(|kind| kind.strip_suffix(end));
        let is_name = |of: &str| {
            let is_part = |one: char| one.is_ascii_lowercase() || one == '_';
            of.starts_with("tl_") && of.chars().all(is_part)
        };
        if let Some(of) = of.filter(|of| is_name(of)) {
            return format!("{before}{of} {stars}{name}");
        }
    }
    panic!("a type that is not known in C: {kind}");
}
