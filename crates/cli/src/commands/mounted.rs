//! The mounts that are ours, as `mount` and `status` list them without arguments.

use serde_json::{Value, json};
use throughline_fuse::mounts::{self, Mount};

use super::status::ask;
use crate::context::Context;
use crate::mount::point::is_dead;
use crate::problem::{Doing, Failure};
use crate::text::{human, printable};

/// A mount, and what its server says; nothing where it has ended or does not tell us.
struct Ours {
    mount: Mount,
    state: Option<Value>,
}

/// The types under which we mount: our own, and fuse2fs's.
fn may_be_ours(mount: &Mount) -> bool {
    mount.fs_type == "fuse.throughline" || mount.fs_type.starts_with("fuse.ext")
}

/// Others' servers are not asked: one that hangs would stop us.
fn all() -> Result<Vec<Ours>, Failure> {
    let mounts = mounts::all().doing(|| "cannot read the list of mounts")?;
    let mounts = mounts.into_iter().filter(may_be_ours);
    let ours = mounts.filter_map(|mount| {
        let state = ask(&mount.point, &mount).ok();
        let is_ours = state.is_some() || mount.fs_type == "fuse.throughline";
        is_ours.then_some(Ours { mount, state })
    });
    Ok(ours.collect())
}

/// As mount(8) lists them.
pub(super) fn list(context: &mut Context) -> Result<(), Failure> {
    for Ours { mount, .. } in all()? {
        let line = format!(
            "{} on {} type {} ({})",
            mount.source.display(),
            mount.point.display(),
            mount.fs_type,
            mount.options
        );
        let shown = printable(line.as_ref(), context.out.terminal).into_owned();
        context.out.line(shown)?;
    }
    Ok(())
}

/// One line each: what is mounted where, and what it does.
pub(super) fn states(context: &mut Context) -> Result<(), Failure> {
    let all = all()?;
    if context.json {
        let values = all.into_iter().map(|Ours { mount, state }| {
            let mut value = state.unwrap_or_else(|| {
                json!({ "image": mount.source.to_string_lossy(), "ended": is_dead(&mount.point) })
            });
            value["directory"] = json!(mount.point.to_string_lossy());
            value
        });
        return context.out.json(&values.collect());
    }
    for Ours { mount, state } in all {
        let what = match &state {
            Some(state) => {
                let dirty = state["dirty"]["bytes"].as_u64().unwrap_or_default();
                let way = match (state["read_only"] == true, state["stopped"].is_null()) {
                    (true, _) => "read only",
                    (false, true) => "read and write",
                    (false, false) => "takes no more changes",
                };
                format!("{way}, process {}, {} dirty", state["pid"], human(dirty))
            }
            None if is_dead(&mount.point) => {
                "its server has ended: throughline umount cleans up".to_owned()
            }
            None => "another user's".to_owned(),
        };
        let line = format!(
            "{} at {}: {what}",
            mount.source.display(),
            mount.point.display()
        );
        let shown = printable(line.as_ref(), context.out.terminal).into_owned();
        context.out.line(shown)?;
    }
    Ok(())
}
