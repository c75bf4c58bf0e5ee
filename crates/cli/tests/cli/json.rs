//! What `--json` prints is what its schema says (`throughline help json`), for every command that has it.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::common::{Image, good, ok, run, str, throughline, tools_are_missing};
use crate::mount;

/// The schema, and the commands whose output was judged.
struct Judge {
    schema: Value,
    judged: BTreeSet<String>,
}

impl Judge {
    fn new() -> Judge {
        Judge {
            schema: run(["help", "json"]).json(),
            judged: BTreeSet::new(),
        }
    }

    /// Runs a command with `--json`, which may fail with this code, and judges its output.
    #[track_caller]
    fn judge(&mut self, command: &str, words: &[&str], code: i32) -> Value {
        let ran = run(command
            .split(' ')
            .chain(["--json"])
            .chain(words.iter().copied()));
        assert_eq!(ran.code, Some(code), "{command} {words:?}: {}", ran.stderr);
        let value = ran.json();
        self.check(command, &value);
        value
    }

    #[track_caller]
    fn check(&mut self, command: &str, value: &Value) {
        let output = &self.schema["properties"][command];
        assert!(output.is_object(), "{command} is not in the schema");
        if let Err(why) = fits(output, value, &self.schema) {
            panic!("{command}: {why}, in {value:#}");
        }
        self.judged.insert(command.to_owned());
    }
}

/// What of JSON Schema the schema uses.
const KEYWORDS: [&str; 9] = [
    "$ref",
    "additionalProperties",
    "anyOf",
    "description",
    "enum",
    "items",
    "properties",
    "required",
    "type",
];

/// Whether a value fits; otherwise where it does not.
fn fits(schema: &Value, value: &Value, root: &Value) -> Result<(), String> {
    for keyword in schema.as_object().into_iter().flat_map(|all| all.keys()) {
        assert!(
            KEYWORDS.contains(&keyword.as_str()),
            "{keyword} is not judged"
        );
    }
    if let Some(name) = schema["$ref"].as_str() {
        let named = root.pointer(name.trim_start_matches('#'));
        return fits(named.expect(name), value, root);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let tried: Vec<_> = any.iter().map(|one| fits(one, value, root)).collect();
        return match tried.iter().any(Result::is_ok) {
            true => Ok(()),
            false => Err(format!("none of {tried:?}")),
        };
    }
    if let Some(allowed) = schema["enum"].as_array() {
        return match allowed.contains(value) {
            true => Ok(()),
            false => Err(format!("{value} is none of {allowed:?}")),
        };
    }
    let is_of = |name: &str| match name {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        other => panic!("{other} is no type"),
    };
    let is_right = match &schema["type"] {
        Value::String(name) => is_of(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is_of),
        other => panic!("the type is {other}"),
    };
    if !is_right {
        return Err(format!("{value} is not {}", schema["type"]));
    }
    for (at, one) in value.as_array().into_iter().flatten().enumerate() {
        fits(&schema["items"], one, root).map_err(|why| format!("[{at}]: {why}"))?;
    }
    let Some(object) = value.as_object() else {
        return Ok(());
    };
    let required = schema["required"].as_array().into_iter().flatten();
    if let Some(name) = required
        .filter_map(Value::as_str)
        .find(|name| !object.contains_key(*name))
    {
        return Err(format!("{name} is missing"));
    }
    for (name, one) in object {
        let of_name = match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => {
                return Err(format!("{name} is not in the schema"));
            }
            (Value::Null, others) => others,
            (of_name, _) => of_name,
        };
        fits(of_name, one, root).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

#[test]
fn what_json_prints_is_what_the_schema_says() {
    if tools_are_missing() {
        return;
    }
    let mut judge = Judge::new();
    judge_files(&mut judge);
    judge_making(&mut judge);
    judge_changes(&mut judge);
    judge_mounts(&mut judge);
    let all = judge.schema["properties"].as_object().unwrap();
    let all: BTreeSet<String> = all.keys().cloned().collect();
    assert_eq!(judge.judged, all);
}

/// Commands that only read.
fn judge_files(judge: &mut Judge) {
    let image = Image::ext4();
    let (root, path) = (image.at("/"), image.str());
    ok(["mkdir", &image.at("/etc"), &image.at("/dev")]);
    ok(["touch", &image.at("/etc/motd")]);
    ok(["ln", "-s", "../etc/motd", &image.at("/dev/link")]);
    ok(["mknod", &image.at("/dev/null"), "c", "1", "3"]);
    ok([
        "setfattr",
        "-n",
        "user.a",
        "-v",
        "b",
        &image.at("/etc/motd"),
    ]);
    let mut odd = image.at("/").into_bytes();
    odd.push(0xff);
    let odd = <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(odd);
    good(throughline().arg("touch").arg(odd));
    judge.judge("info", &[path], 0);
    judge.judge("df", &[path], 0);
    let listed = judge.judge("ls", &["-a", &root, &image.at("/dev")], 0);
    for name in ["name_hex", "directory", "target", "device"] {
        let has_it = |one: &Value| one.get(name).is_some();
        assert!(listed.as_array().unwrap().iter().any(has_it), "no {name}");
    }
    judge.judge("tree", &["-a", &root], 0);
    judge.judge("stat", &[&image.at("/dev/link"), &image.at("/dev/null")], 0);
    judge.judge("du", &["-a", &root], 0);
    judge.judge("getfattr", &["-d", &image.at("/etc/motd")], 0);
    judge.judge("tune", &["--measure", path], 0);
    judge.judge("explain", &["--to", "-", "ls", &image.at("/no")], 1);
    judge.judge("explain", &["--to", "-", "rm", &image.at("/etc/motd")], 0);
    let file = image.sibling("file");
    fs::write(&file, vec![7; 3 << 20]).unwrap();
    judge.judge("cp", &["--stats", str(&file), &root], 0);
}

/// Commands that make images.
fn judge_making(judge: &mut Judge) {
    let image = Image::ext4();
    let tree = image.sibling("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "text").unwrap();
    let (tree, new) = (str(&tree), image.sibling("new"));
    let new = str(&new);
    judge.judge("mkfs", &["-n", new, "20G"], 0);
    judge.judge("mkfs", &["-d", tree, new, "16M"], 0);
    judge.judge("mkfs", &["-F", "--partition", "gpt", new, "16M"], 0);
    judge.judge("info", &[new], 0);
    judge.judge("pack", &["-F", tree, "-o", new], 0);
    judge.judge("pack", &[tree, "--check", new], 0);
    fs::write(format!("{tree}/other"), "text").unwrap();
    judge.judge("pack", &[tree, "--check", new], 1);
    judge.judge(
        "pack",
        &["-F", tree, "-o", new, "--verity", "--partition", "gpt"],
        0,
    );
    judge.judge("pack", &[tree, "--into", &image.at("/")], 0);
    // A disk on which nothing is known: its partitions are what there is to show.
    let disk = image.sibling("disk");
    ok(["mkfs", "-q", "--partition", "gpt", str(&disk), "16M"]);
    let mut bytes = fs::read(&disk).unwrap();
    let info = judge.judge("info", &[str(&disk)], 0);
    let start = info[0]["partitions"][0]["start_bytes"].as_u64().unwrap() as usize;
    bytes[start..start + 4096].fill(0);
    fs::write(&disk, bytes).unwrap();
    let info = judge.judge("info", &[str(&disk)], 0);
    assert!(info[0]["no_volume"].is_string(), "{info}");
}

/// Commands that change images.
fn judge_changes(judge: &mut Judge) {
    let image = Image::ext4();
    judge.judge("resize", &["-n", image.str(), "+16M"], 0);
    judge.judge("resize", &[image.str(), "+16M"], 0);
    judge.judge("replay", &[image.str()], 0);
    let log = "jo\njw -b 333 /dev/zero\njc\n";
    image.debugfs_write(log);
    let replayed = judge.judge("replay", &[image.str()], 0);
    assert!(replayed[0]["journal"].is_object(), "{replayed}");
    let overlay = image.sibling("changes.qcow2");
    let overlay = str(&overlay);
    ok(["mkdir", "--overlay", overlay, &image.at("/new")]);
    let of_it = ["--backing", image.str(), overlay];
    judge.judge("overlay diff", &of_it, 0);
    let changed = judge.judge("overlay diff", &[&["--ranges"], &of_it[..]].concat(), 0);
    assert!(!changed.as_array().unwrap().is_empty());
}

/// The state of mounts.
fn judge_mounts(judge: &mut Judge) {
    // Other tests mount meanwhile.
    judge.judge("status", &[], 0);
    if mount::skipped() {
        return;
    }
    let image = Image::ext4();
    let dir = image.sibling("dir");
    fs::create_dir(&dir).unwrap();
    ok(["mount", image.str(), str(&dir)]);
    let status = run(["status", "--json", str(&dir)]);
    let all = run(["status", "--json"]);
    ok(["umount", str(&dir)]);
    judge.check("status", &status.json());
    judge.check("status", &all.json());
}

#[test]
fn the_judge_refuses_what_does_not_fit() {
    let judge = Judge::new();
    let root = &judge.schema;
    let du = &root["properties"]["du"];
    let refused = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        fits(du, &value, root).unwrap_err()
    };
    for (text, why) in [
        (r#"{"name": "a", "bytes": 1}"#, "array"),
        (r#"[{"name": "a"}]"#, "bytes is missing"),
        (r#"[{"name": "a", "bytes": 1.5}]"#, "integer"),
        (r#"[{"name": null, "bytes": 1}]"#, "string"),
        (
            r#"[{"name": "a", "bytes": 1, "more": 2}]"#,
            "more is not in the schema",
        ),
    ] {
        let said = refused(text);
        assert!(said.contains(why), "{text}: {said}");
    }
    let change = serde_json::json!([{"change": "X", "path": "/"}]);
    assert!(fits(&root["properties"]["overlay diff"], &change, root).is_err());
}
