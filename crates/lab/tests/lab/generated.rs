//! Help, completions and manual pages of the lab, which are those of `throughline lab`; and what it does not
//! overwrite.

use std::fs;
use std::process::Command;

use crate::common::{Image, Ran, built, fails, good, ok, run, str, tools_are_missing};

#[test]
fn the_program_is_throughline_lab_by_another_name() {
    let lab = |words: &[&str]| good(Command::new(built("throughline-lab")).args(words)).text();
    let help = ok(["lab", "--help"]);
    assert!(help.contains("Usage: throughline lab"), "{help}");
    assert!(
        !help.contains("completions") && help.contains("Options for all commands"),
        "{help}"
    );
    assert_eq!(lab(&["--help"]), help);
    assert_eq!(ok(["help", "lab"]), ok(["lab", "help"]));
    assert_eq!(lab(&["gate", "--help"]), ok(["lab", "gate", "--help"]));
    let list = ok(["lab", "list"]);
    assert!(
        list.lines().any(|line| line.starts_with("founding/1 ")),
        "{list}"
    );
    assert_eq!(lab(&["-q", "list"]), list);
    let version = ok(["--version"]);
    assert_eq!(
        lab(&["--version"]),
        version.replace("throughline", "throughline-lab")
    );
    fails(["lab", "run", "no-such-experiment"], 2, "no experiment");
    assert_eq!(run(["lab"]).code, Some(2));
    assert_eq!(run(["lab", "gate", "--no-such-option"]).code, Some(64));
}

#[test]
fn completions_and_manual_pages_include_the_lab() {
    for shell in ["bash", "zsh", "fish"] {
        let text = ok(["completions", shell]);
        assert!(
            text.contains("until-certain") && text.contains("complete-place"),
            "{shell}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    ok(["man", str(dir.path())]);
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let lab = page("throughline-lab.1");
    for part in [
        ".SH EXAMPLES",
        ".SH \"SEE ALSO\"",
        "throughline lab list",
        "throughline\\-lab\\-run(1)",
    ] {
        assert!(lab.contains(part), "no {part}: {lab}");
    }
    let run = page("throughline-lab-run.1");
    assert!(
        run.contains("until\\-certain") && !run.contains("dirty\\-background"),
        "{run}"
    );
    assert!(!dir.path().join("throughline-lab-null.1").exists());
}

/// Calls the completion of `throughline` as shells do.
#[test]
fn words_of_the_lab_are_completed() {
    let folder = built("throughline").with_file_name("");
    let bash = "source <(throughline completions bash)
        COMP_WORDS=(throughline -q lab ga); COMP_CWORD=3; COMP_LINE='throughline -q lab ga'; COMP_POINT=21
        _throughline_places throughline ga lab; echo \"${COMPREPLY[@]}\"
        COMP_WORDS=(throughline lab run --until); COMP_CWORD=3; COMP_LINE='throughline lab run --until'
        COMP_POINT=${#COMP_LINE}; _throughline_places throughline --until run; echo \"${COMPREPLY[@]}\"";
    let fish = "throughline completions fish | source
        complete -C 'throughline lab ga' | cut -f 1; complete -C 'throughline lab run --until' | cut -f 1";
    for (shell, script) in [("bash", bash), ("fish", fish)] {
        let mut command = Command::new(shell);
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let Ok(output) = command.args(["-c", script]).env("PATH", path).output() else {
            throughline_testkit::missing!("{shell} is not installed");
            continue;
        };
        let ran = Ran::from(output);
        assert_eq!(
            ran.text(),
            "gate\n--until-certain\n",
            "{shell}: {}",
            ran.stderr
        );
    }
}

#[test]
fn records_and_reports_are_not_written_to_an_image() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let before = fs::read(image.path()).unwrap();
    let job = image.sibling("job.fio");
    fs::write(&job, "[a]\nrw=write\nsize=1M\nbs=4k\nfilename=f\n").unwrap();
    for arguments in [
        &["lab", "report", "run.jsonl", "--output", image.str()][..],
        &["lab", "run", "founding/1", "--out", image.str()],
        &[
            "lab",
            "run",
            str(&job),
            "--target",
            "dir:.",
            "--out",
            image.str(),
        ],
    ] {
        fails(arguments, 1, "not writing to");
        assert!(fs::read(image.path()).unwrap() == before, "{arguments:?}");
    }
}
