//! Our mounts, as `mount` and `status` list them without arguments.

use std::time::Instant;

use serde_json::json;
use throughline_fuse::mounts::{self, Mount};

use super::status::{Answer, AskedApart};
use crate::context::Context;
use crate::mount::point::is_dead;
use crate::problem::{Doing, Failure};
use crate::text::human;

/// A mount and the answer of its server.
struct Ours {
    mount: Mount,
    answer: Answer,
}

/// Whether the mount has throughline's own type.
fn is_ours(mount: &Mount) -> bool {
    let subtype = mount.fs_type.split_once('.').map(|(_, subtype)| subtype);
    mount.is_fuse() && subtype == Some("throughline")
}

/// Whether the mount has throughline's own type, or one that fuse2fs uses too. In the second case, only the
/// server's answer shows whether it is ours.
fn may_be_ours(mount: &Mount) -> bool {
    let subtype = mount.fs_type.split_once('.').map(|(_, subtype)| subtype);
    is_ours(mount) || mount.is_fuse() && subtype.is_some_and(|subtype| subtype.starts_with("ext"))
}

/// All our mounts. Mounts of other types are not queried. Servers that hang delay the list by at most 2 s.
fn all() -> Result<Vec<Ours>, Failure> {
    let mounts = mounts::all().doing(|| "cannot read the list of mounts")?;
    let asked = Instant::now();
    // Query all in parallel: several hung servers delay the list no longer than one.
    let asked_apart = |mount: Mount| (AskedApart::start(&mount.point), mount);
    let all: Vec<_> = mounts
        .into_iter()
        .filter(may_be_ours)
        .map(asked_apart)
        .collect();
    let ours = all.into_iter().filter_map(|(question, mount)| {
        let answer = question.wait(asked);
        let ours = matches!(answer, Answer::State(_)) || is_ours(&mount);
        ours.then_some(Ours { mount, answer })
    });
    Ok(ours.collect())
}

/// Prints the list as mount(8) does.
pub(super) fn list(context: &mut Context) -> Result<(), Failure> {
    for Ours { mount, .. } in all()? {
        let line = format!(
            "{} on {} type {} ({})",
            mount.source.display(),
            mount.point.display(),
            mount.fs_type,
            mount.options
        );
        context.out.name_line(line)?;
    }
    Ok(())
}

/// Prints one line per mount: the image, the directory and the state.
pub(super) fn states(context: &mut Context) -> Result<(), Failure> {
    let all = all()?;
    if context.json {
        let values = all.into_iter().map(|Ours { mount, answer }| {
            let image = mount.source.to_string_lossy();
            let mut value = match answer {
                Answer::State(state) => state,
                Answer::None => json!({ "image": image, "ended": is_dead(&mount.point) }),
                Answer::NotYet => json!({ "image": image, "ended": false, "answers": false }),
            };
            value["directory"] = json!(mount.point.to_string_lossy());
            value
        });
        return context.out.json(&values.collect::<Vec<_>>());
    }
    for Ours { mount, answer } in all {
        let what = match &answer {
            Answer::State(state) => {
                let dirty = state["dirty"]["bytes"].as_u64().unwrap_or_default();
                let way = match (state["read_only"] == true, state["stopped"].is_null()) {
                    (true, _) => "read only",
                    (false, true) => "read and write",
                    (false, false) => "refuses further changes",
                };
                format!("{way}, process {}, {} dirty", state["pid"], human(dirty))
            }
            Answer::NotYet => "its server does not answer".to_owned(),
            Answer::None if is_dead(&mount.point) => {
                "its server has ended: remove the mount with throughline umount".to_owned()
            }
            Answer::None => "belongs to another user".to_owned(),
        };
        let line = format!(
            "{} at {}: {what}",
            mount.source.display(),
            mount.point.display()
        );
        context.out.name_line(line)?;
    }
    Ok(())
}
