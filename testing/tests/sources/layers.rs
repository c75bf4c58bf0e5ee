//! The dependency direction of the design, checked with `cargo metadata`: no crate may use a crate above
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use throughline_testkit::sources;

/// The crates of the workspace that each crate may depend on directly, except for tests.
const MAY_USE: &[(&str, &[&str])] = &[
    // Below all others: any crate may use it.
    ("throughline-locks", &[]),
    ("throughline-archive", &[]),
    ("throughline-web", &[]),
    (
        "throughline-registry",
        &["throughline-archive", "throughline-web"],
    ),
    ("throughline-device", &[]),
    ("throughline-image", &["throughline-device"]),
    (
        "throughline-remote",
        &["throughline-image", "throughline-device", "throughline-web"],
    ),
    ("throughline-block", &["throughline-device"]),
    (
        "throughline-fileio",
        &["throughline-block", "throughline-device"],
    ),
    ("throughline-extfmt", &[]),
    (
        "throughline-journal",
        &[
            "throughline-block",
            "throughline-device",
            "throughline-extfmt",
        ],
    ),
    (
        "throughline-ext",
        &[
            "throughline-fileio",
            "throughline-journal",
            "throughline-extfmt",
            "throughline-block",
            "throughline-device",
        ],
    ),
    (
        "throughline-make",
        &[
            "throughline-archive",
            "throughline-extfmt",
            "throughline-block",
            "throughline-device",
        ],
    ),
    (
        "throughline-fs",
        &[
            "throughline-archive",
            "throughline-image",
            "throughline-remote",
            "throughline-make",
            "throughline-ext",
            "throughline-fileio",
            "throughline-block",
            "throughline-device",
        ],
    ),
    // File I/O for the events of its throttle; the device crate for what a record says of the machine.
    (
        "throughline-explain",
        &["throughline-fs", "throughline-fileio", "throughline-device"],
    ),
    (
        "throughline-lab",
        &[
            "throughline-fs",
            "throughline-block",
            "throughline-device",
            "throughline-explain",
            "throughline-face",
            "throughline-fileio",
            "throughline-forms",
            "throughline-fuse",
            "throughline-models",
        ],
    ),
    // The device crate for aligned memory and for the one ioctl of the connection, both of which need
    // unsafe code.
    (
        "throughline-fuse",
        &["throughline-fs", "throughline-device"],
    ),
    ("throughline-forms", &["throughline-fs"]),
    // The device crate for the rights of single threads and for rings, both of which need unsafe code.
    ("throughline-sandbox", &["throughline-device"]),
    (
        "throughline-face",
        &["throughline-fs", "throughline-explain", "throughline-forms"],
    ),
    // Not the lab, which is a program of its own: who mounts an image links no statistics.
    (
        "throughline",
        &[
            "throughline-fs",
            "throughline-explain",
            "throughline-face",
            "throughline-forms",
            "throughline-fuse",
            "throughline-registry",
            "throughline-sandbox",
        ],
    ),
    ("throughline-python", &["throughline-fs"]),
    ("throughline-capi", &["throughline-fs"]),
    // Not part of the tests' crate: the lab measures models, and must not depend on test helpers.
    ("throughline-models", &["throughline-device"]),
    ("throughline-testkit", &[]),
    (
        "throughline-testing",
        &[
            "throughline-device",
            "throughline-image",
            "throughline-testkit",
        ],
    ),
];

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn crates_depend_downwards_only() {
    let metadata = metadata();
    let rules: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let packages = metadata["packages"]
        .as_array()
        .expect("packages are a list");
    assert_eq!(
        packages.len(),
        rules.len(),
        "a crate is missing from the table above"
    );
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        let allowed = rules
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not in the table above"));
        for dependency in package["dependencies"]
            .as_array()
            .expect("dependencies are a list")
        {
            let (used, kind) = (
                dependency["name"].as_str().unwrap_or_default(),
                &dependency["kind"],
            );
            let is_above = used.starts_with("throughline") && used != "throughline-locks";
            if is_above && kind.is_null() {
                assert!(allowed.contains(&used), "{name} must not depend on {used}");
            }
        }
    }
}

/// The bugs that the power-cut tests plant are no feature: nobody can enable them in a published crate.
#[test]
fn planted_bugs_are_no_feature() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for (feature, _) in package["features"].as_object().into_iter().flatten() {
            assert!(!feature.contains("plant"), "{}: {feature}", package["name"]);
        }
    }
}

/// What a registry shows of a crate: its own README, and its docs for the platforms that it supports.
#[test]
fn published_crates_present_themselves() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // `publish = false` is an empty list of registries.
    let published = packages.filter(|package| package["publish"].is_null());
    let mut count = 0;
    for package in published {
        let name = package["name"].as_str().expect("a name");
        let readme = package["readme"].as_str();
        let readme = readme.unwrap_or_else(|| panic!("{name} has no README"));
        let is_own = readme == "README.md" || name == "throughline";
        assert!(is_own, "{name} has the README of the command");
        let docs = &package["metadata"]["docs"]["rs"]["targets"];
        assert!(docs.is_array(), "{name} has no settings for docs.rs");
        count += 1;
    }
    assert!(count > 10, "only {count} are published");
}

/// Locks that the order does not know, with the reason.
const UNORDERED: &[(&str, &str)] = &[
    // The state of one call, which its thread locks before and under the mapping.
    ("crates/ext/src/mapper/mod.rs", "throughline_locks::parts"),
    // A part of `FileLock`, which is in the order as a whole.
    ("crates/fileio/src/sync.rs", "ShardedLock"),
    ("crates/fileio/src/sync.rs", "throughline_locks::parts"),
    // It measures one.
    ("crates/lab/src/experiments/founding2.rs", "ShardedLock"),
];

/// Every lock is one of the crate `locks`, which checks the order in which a thread takes them.
#[test]
fn locks_are_in_the_order() {
    let others = ["parking_lot", "ShardedLock", "throughline_locks::parts"];
    let of_std = ["Mutex", "MutexGuard", "RwLock", "Condvar"];
    let mut found = Vec::new();
    let mut count = 0;
    for path in sources::files(&sources::root().join("crates"), &["rs"]) {
        let path = path.strip_prefix(sources::root()).expect("below the root");
        let file = path.to_str().expect("a name in UTF-8");
        if file.starts_with("crates/locks/") || !file.contains("/src/") {
            continue;
        }
        count += 1;
        let text = sources::text(&sources::root().join(path));
        let lines = text.lines().map(str::trim);
        let code: Vec<_> = lines.filter(|line| !line.starts_with("//")).collect();
        let code = code.join(" ");
        for imported in code.split("std::sync::").skip(1) {
            let end = imported.find([';', '<', '(']).unwrap_or(imported.len());
            let names = imported[..end].split(|c: char| !c.is_alphanumeric());
            let std = names.filter(|name| of_std.contains(name));
            found.extend(std.map(|name| (file.to_owned(), format!("std::sync::{name}"))));
        }
        let other = others.iter().filter(|other| code.contains(**other));
        found.extend(other.map(|other| (file.to_owned(), (*other).to_owned())));
    }
    found.retain(|(file, what)| *file != "crates/fileio/src/file_lock.rs" || what != "ShardedLock");
    let known = UNORDERED
        .iter()
        .map(|(file, what)| (file.to_string(), what.to_string()));
    assert_eq!(
        found,
        known.collect::<Vec<_>>(),
        "locks outside of the order"
    );
    assert!(count > 300, "only {count} files");
}

#[test]
fn unsafe_code_is_only_in_device() {
    let root = sources::root();
    for (name, _) in MAY_USE
        .iter()
        .filter(|(name, _)| !["throughline-device", "throughline-capi"].contains(name))
    {
        let main = match *name {
            "throughline-fs" => "crates/throughline/src/lib.rs".into(),
            "throughline-testing" => "testing/src/lib.rs".into(),
            "throughline-testkit" => "testing/kit/src/lib.rs".into(),
            "throughline-models" => "testing/models/src/lib.rs".into(),
            "throughline" => "crates/cli/src/main.rs".into(),
            other => format!(
                "crates/{}/src/lib.rs",
                other.trim_start_matches("throughline-")
            ),
        };
        let text = sources::text(&root.join(&main));
        assert!(
            text.lines().any(|line| line == "#![forbid(unsafe_code)]"),
            "{main} does not forbid unsafe code"
        );
    }
}

/// The C library needs it for the names that it exports, and for pointers, which one module handles.
#[test]
fn unsafe_code_of_the_c_library_is_in_one_module() {
    let files = sources::files(&sources::root().join("crates/capi/src"), &["rs"]);
    assert!(files.len() > 5, "only {} files", files.len());
    for path in files.iter().filter(|path| !path.ends_with("pointers.rs")) {
        let text = sources::text(path);
        let lines = text.lines().map(str::trim);
        let code = lines.filter(|line| !line.starts_with("//"));
        for line in code.filter(|line| *line != "#[unsafe(no_mangle)]") {
            assert!(!line.contains("unsafe"), "{}: {line}", path.display());
        }
    }
}

/// The source files of `throughline`, with their text.
fn library_sources() -> Vec<(PathBuf, String)> {
    let files = sources::files(&sources::root().join("crates/throughline/src"), &["rs"]);
    let with_text = |path: PathBuf| (path.clone(), sources::text(&path));
    files.into_iter().map(with_text).collect()
}

/// The public API of `throughline` has no hidden items beside one module: what our own crates use beyond the
/// API is there. Conversions from the errors of lower crates cannot be in a module.
#[test]
fn the_library_hides_only_one_module() {
    let mut hidden = Vec::new();
    for (_, text) in library_sources() {
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line.starts_with("#[doc(hidden)]") {
                let item = lines.next().unwrap_or_default();
                hidden.push(item.split('<').next().unwrap_or_default().to_owned());
            }
        }
    }
    hidden.retain(|item| item != "impl From");
    assert_eq!(hidden, ["pub mod internal;"]);
}

/// Calls of `throughline` that change a volume or a file.
const CHANGES: &[&str] = &[
    "allocate",
    "append",
    "append_all",
    "copy",
    "copy_range",
    "create",
    "create_dir",
    "create_dir_all",
    "create_file",
    "create_new",
    "hard_link",
    "link",
    "link_node",
    "make_node",
    "remove",
    "remove_dir",
    "remove_dir_all",
    "remove_file",
    "remove_xattr",
    "rename",
    "rename_with",
    "rmdir",
    "set",
    "set_acl",
    "set_attributes",
    "set_default_acl",
    "set_flags",
    "set_len",
    "set_modified",
    "set_permissions",
    "set_project",
    "set_symlink_attributes",
    "set_version",
    "set_with",
    "set_xattr",
    "symlink",
    "tmpfile",
    "unlink",
    "write",
    "write_all_at",
    "write_at",
    "write_new",
    "write_vectored_at",
];

/// Every public call that changes something says in bold what happens to the change if it is not synced.
#[test]
fn calls_say_what_a_crash_does_to_changes() {
    let mut silent = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, text) in library_sources() {
        let mut docs = String::new();
        for line in text.lines() {
            let trimmed = line.trim_start();
            if trimmed.starts_with("///") {
                docs.push_str(trimmed);
            } else if let Some(method) = trimmed.strip_prefix("pub fn ") {
                let name = method.split(['(', '<']).next().unwrap_or_default();
                // Not the setters of options, nor functions outside of types that are not operations.
                let takes_self = method.contains("&self") || method.ends_with('(');
                let is_operation = path.parent().is_some_and(|folder| folder.ends_with("ops"));
                if (takes_self && line != trimmed || is_operation) && CHANGES.contains(&name) {
                    seen.insert(name.to_owned());
                    if !docs.contains("**") {
                        silent.push(format!("{}: {name}", path.display()));
                    }
                }
                docs.clear();
            } else if !trimmed.starts_with("#[") {
                docs.clear();
            }
        }
    }
    assert!(silent.is_empty(), "no bold text:\n{}", silent.join("\n"));
    let missing: Vec<_> = CHANGES
        .iter()
        .filter(|name| !seen.contains(**name))
        .collect();
    assert!(missing.is_empty(), "no such calls: {missing:?}");
}
