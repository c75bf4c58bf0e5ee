//! `npm ci` of packages whose archives are on the host, with npm's cache on the host and filled.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use super::{Program, rate};
use crate::Result;
use crate::command::timed;
use crate::kernel::named;
use crate::mounts::Bench;
use crate::mounts::place::Place;
use crate::mounts::work::{NEW, have};
use crate::outcome::Outcome;

pub(super) const CI: &str = "npm ci";
const FILES_PER_PACKAGE: u64 = 25;
/// The directory of the packages' archives. `npm` stores paths relative to the project: both its directory on
/// the host and that on a mount are two levels below the scratch directory.
const ARCHIVES: &str = "archives";
/// A project consists of these files.
const PROJECT: [&str; 2] = ["package.json", "package-lock.json"];

/// Makes the packages and a project that depends on all of them.
pub(super) fn prepare<'a>(
    bench: &'a Bench<'_>,
    files: u64,
    outcome: &mut Outcome,
) -> Result<Option<Program<'a>>> {
    if !have(outcome, "npm", "npm") || !have(outcome, "node", "npm") {
        return Ok(None);
    }
    let packages = files.div_ceil(FILES_PER_PACKAGE);
    fs::create_dir(bench.scratch(ARCHIVES))?;
    let mut dependencies = serde_json::Map::new();
    for number in 0..packages {
        let name = format!("package-{number}");
        make_package(bench, &name)?;
        let archive = format!("file:../../{ARCHIVES}/{name}.tgz");
        dependencies.insert(name, archive.into());
    }
    let project = bench.scratch("npm/project");
    fs::create_dir_all(&project)?;
    let package = serde_json::json!({
        "name": "project", "version": "1.0.0", "dependencies": dependencies,
    });
    fs::write(project.join(PROJECT[0]), package.to_string())?;
    let cache = bench.scratch("npm/cache");
    let mut lock = npm(named("npm"), "install", &project, &cache);
    timed(lock.arg("--package-lock-only"))?;
    outcome.count("npm: files", (packages * FILES_PER_PACKAGE) as f64);
    Ok(Some(Box::new(move |session| {
        let dir = session.root().make_dir("project")?;
        for name in PROJECT {
            let mut file = Place::new(dir.as_fd()).open(name, NEW)?;
            file.write_all(&fs::read(project.join(name))?)?;
        }
        drop(dir);
        let view = session.view()?;
        let mut ci = npm(
            view.command("npm"),
            "ci",
            &view.root().join("project"),
            &cache,
        );
        let rate = rate(packages * FILES_PER_PACKAGE, &mut ci)?;
        Ok(vec![(CI, "files/s", rate)])
    })))
}

/// Makes the archive of one package.
fn make_package(bench: &Bench<'_>, name: &str) -> Result<()> {
    let folder = bench.scratch("package");
    fs::create_dir_all(folder.join("lib"))?;
    let package = serde_json::json!({"name": name, "version": "1.0.0"});
    fs::write(folder.join("package.json"), package.to_string())?;
    let mut random = fastrand::Rng::with_seed(25);
    for file in 1..FILES_PER_PACKAGE {
        let content = &bench.source[..random.usize(500..6000)];
        fs::write(folder.join(format!("lib/file-{file}.js")), content)?;
    }
    let archive = bench.scratch(ARCHIVES).join(format!("{name}.tgz"));
    let mut tar = named("tar");
    tar.arg("czf").arg(archive).arg("-C").arg(bench.scratch(""));
    timed(tar.arg("package"))?;
    Ok(fs::remove_dir_all(folder)?)
}

/// A command of npm on a project, with no network and without the settings of this user and machine.
fn npm(mut command: Command, what: &str, project: &Path, cache: &Path) -> Command {
    command
        .args([what, "--silent", "--offline", "--ignore-scripts"])
        .args(["--no-audit", "--no-fund", "--no-update-notifier"])
        // Files that do not exist; npm refuses the same name for both.
        .arg("--userconfig")
        .arg(cache.with_file_name("no-user"))
        .arg("--globalconfig")
        .arg(cache.with_file_name("no-global"))
        .arg("--cache")
        .arg(cache)
        .arg("--prefix")
        .arg(project);
    command
}
