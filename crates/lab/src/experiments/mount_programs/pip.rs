//! `pip install` of wheels on the host, into a directory on the mount. The wheels are not compressed, and
//! nothing is compiled, so that more of the time is the file system's.

use super::{Program, rate};
use crate::Result;
use crate::command::timed;
use crate::kernel::named;
use crate::mounts::Bench;
use crate::mounts::work::have;
use crate::outcome::Outcome;

pub(super) const INSTALL: &str = "pip install";
const FILES_PER_WHEEL: u64 = 250;
/// Makes the wheels; prints their names.
const MAKE_WHEELS: &str = include_str!("wheels.py");

/// Makes the wheels.
pub(super) fn prepare<'a>(
    bench: &'a Bench<'_>,
    files: u64,
    outcome: &mut Outcome,
) -> Result<Option<Program<'a>>> {
    if !have(outcome, "python3", "pip") {
        return Ok(None);
    }
    // The program itself, where `python3` is a script that chooses one.
    let which = "import sys, pip; print(sys.executable)";
    let Ok((_, python)) = timed(named("python3").args(["-c", which])) else {
        outcome.note("pip: skipped: python3 has no module pip");
        return Ok(None);
    };
    let python = python.trim().to_owned();
    let folder = bench.scratch("wheels");
    std::fs::create_dir(&folder)?;
    let wheels = files.div_ceil(FILES_PER_WHEEL);
    let per_wheel = files / wheels;
    let mut make = named(&python);
    make.args(["-c", MAKE_WHEELS]).arg(&folder);
    make.args([wheels.to_string(), per_wheel.to_string()]);
    let (_, names) = timed(&mut make)?;
    let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
    outcome.count("pip: files", (wheels * per_wheel) as f64);
    Ok(Some(Box::new(move |session| {
        let view = session.view()?;
        let mut pip = view.command(&python);
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
            .args(["--no-cache-dir", "--no-input", "install"])
            .args(["--no-index", "--no-deps", "--no-compile"])
            .args(["--no-warn-script-location", "--ignore-installed"])
            .arg("--find-links")
            .arg(&folder)
            .arg("--prefix")
            .arg(view.root().join("installed"))
            .args(&names)
            .env("PIP_CONFIG_FILE", "/dev/null")
            .env("PIP_ROOT_USER_ACTION", "ignore");
        let installed = rate(wheels * per_wheel, &mut pip)?;
        Ok(vec![(INSTALL, "files/s", installed)])
    })))
}
