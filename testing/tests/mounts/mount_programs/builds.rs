//! `cargo build` on the mount: many processes that map, lock, link and rename, and then run the result.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::mount_programs::stage::{EXT3, EXT4, Stage, amount, run};

/// A library of several modules, a program that uses it, and tests of both.
fn generate(root: &Path, modules: u64) {
    fs::create_dir_all(root.join("src/bin")).expect("mkdir");
    let manifest =
        "[package]\nname = \"built\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n";
    fs::write(root.join("Cargo.toml"), manifest).expect("a manifest");
    fs::write(
        root.join("build.rs"),
        "fn main() {\n    let out = std::env::var(\"OUT_DIR\").unwrap();\n    \
         std::fs::write(out + \"/made.rs\", \"pub const MADE: u64 = 41;\").unwrap();\n}\n",
    )
    .expect("a build script");
    let mut library = String::from("include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));\n");
    let mut sum = String::from("pub fn sum() -> u64 {\n    MADE");
    for number in 0..modules {
        library += &format!("pub mod part{number};\n");
        sum += &format!(" + part{number}::value()");
        fs::write(root.join(format!("src/part{number}.rs")), module(number)).expect("a module");
    }
    fs::write(root.join("src/lib.rs"), library + &sum + "\n}\n").expect("a library");
    let program = "fn main() {\n    println!(\"{}\", built::sum());\n}\n";
    fs::write(root.join("src/bin/built.rs"), program).expect("a program");
}

fn module(number: u64) -> String {
    format!(
        "use std::collections::BTreeMap;\n\npub fn value() -> u64 {{\n    \
         let map: BTreeMap<u64, String> = (0..{number}).map(|n| (n, n.to_string())).collect();\n    \
         map.len() as u64\n}}\n\n#[test]\nfn counts() {{\n    assert_eq!(value(), {number});\n}}\n"
    )
}

/// The cargo that runs this test, without its environment settings for it.
#[track_caller]
fn cargo(root: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let ours = ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"].contains(&&*text);
        if (text.starts_with("CARGO") || text.starts_with("RUST")) && !ours {
            command.env_remove(&name);
        }
    }
    command
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env("CARGO_NET_OFFLINE", "true")
        .args(arguments)
        .arg("--offline");
    run(&mut command).stdout
}

fn built(recipe: &'static str, incremental: bool) {
    let Some(stage) = Stage::new(recipe, "1g", &["cc"]) else {
        return;
    };
    let root = stage.path("/crate");
    let modules = amount(8, 200);
    generate(&root, modules);
    cargo(&root, &["build", "--quiet"]);
    let expected = |modules: u64| format!("{}\n", 41 + (0..modules).sum::<u64>());
    assert_eq!(cargo(&root, &["run", "--quiet"]), expected(modules));
    if incremental {
        generate(&root, modules + 1);
        assert_eq!(cargo(&root, &["run", "--quiet"]), expected(modules + 1));
        cargo(&root, &["test", "--quiet"]);
    }
    stage.finish();
}

#[test]
fn built_tested_and_built_again() {
    built(EXT4, true);
}

#[test]
fn built_on_ext3() {
    built(EXT3, false);
}
