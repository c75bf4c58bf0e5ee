//! The sandbox of a server: which rights it gives up once the image is open and mounted, and what its status
//! says about them.

use std::path::PathBuf;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use throughline_fuse::Session;
use throughline_fuse::options::MountOptions;
use throughline_sandbox::{Entered, Kept, Network, Policy, Prepared};

use super::Plan;
use super::trouble::{Trouble, system};
use crate::objects;
use crate::output::note;
use crate::problem::Problem;

/// Queues of devices over io_uring. More threads use system calls.
const RINGS: usize = 96;
/// The memory of the server of an untrusted image, in bytes, besides its page cache and what is reserved for
/// requests: metadata, open files, other threads.
const UNTRUSTED_BYTES: u64 = 512 << 20;

/// Whether the server runs in a sandbox. That of a mount that is explained does not: it runs the kernel's
/// tools beside it.
fn is_for(plan: &Plan) -> bool {
    plan.options.sandbox && plan.watched.is_none()
}

/// Opens what the sandbox needs, before there is a mount that these paths could lead to.
pub(super) fn prepare(plan: &Plan) -> Option<Prepared> {
    let mut policy = Policy::server();
    policy.rings = Some(RINGS);
    if is_remote(plan) {
        policy.network = Network::Open;
        if let Some(files) = &mut policy.files {
            // Names are resolved, and credentials renewed, from files in many places.
            files.read = vec![PathBuf::from("/")];
            files.below.extend(objects::cache_dir());
        }
    }
    is_for(plan).then(|| policy.prepare())
}

/// Drops the rights of this process that serving the mount does not need, and shows that in its status. What
/// the system lacks of the sandbox is reported.
///
/// # Errors
/// For an untrusted image, the sandbox must be complete.
pub(super) fn drop_rights(
    plan: &Plan,
    session: &Session,
    prepared: Option<Prepared>,
) -> Result<(), Trouble> {
    if plan.options.untrusted {
        bound_memory(&plan.options, session.reserved_bytes());
    }
    let Some(prepared) = prepared else {
        session.set_sandbox(json!({
            "state": "off",
            "landlock_abi": 0,
            "system_calls": false,
            "capabilities": "all",
            "io_uring": false,
            "network": "open",
            "missing": [],
        }));
        return Ok(());
    };
    let entered = prepared.enter();
    session.set_sandbox(state(&entered));
    if entered.missing().is_empty() {
        return Ok(());
    }
    let missing = entered.missing().join("; ");
    if plan.options.untrusted {
        let problem = Problem::new(format!("the sandbox is incomplete: {missing}")).with_next(
            "docs/mounting.md says which kernels have it; 'ro,nosuid,nodev' mounts without it",
        );
        return Err(system("cannot mount with 'untrusted'")(problem));
    }
    tracing::info!(%missing, "the sandbox is incomplete");
    if !plan.quiet {
        note(&format!(
            "the sandbox of this mount is incomplete: {missing}"
        ));
    }
    Ok(())
}

fn state(entered: &Entered) -> Value {
    json!({
        "state": match entered.missing().is_empty() {
            true => "on",
            false => "partial",
        },
        "landlock_abi": entered.landlock_abi,
        "system_calls": entered.calls,
        "capabilities": match entered.capabilities {
            Kept::None => "none",
            Kept::Nice => "sys_nice",
            Kept::All => "all",
        },
        "io_uring": entered.rings,
        "network": match entered.network {
            Network::Closed => "closed",
            Network::Open => "open",
        },
        "missing": entered.missing(),
    })
}

/// Whether a part of the image is in object storage.
pub(super) fn is_remote(plan: &Plan) -> bool {
    let options = &plan.options;
    let named = options
        .backing
        .iter()
        .chain(&options.overlay)
        .chain(&options.journal);
    objects::is_object(&plan.image) || named.into_iter().any(|path| objects::is_object(path))
}

/// Bounds the memory of this process. If it takes more, which only a bug of ours can make it do, it ends.
fn bound_memory(options: &MountOptions, reserved_bytes: usize) {
    let bytes = options.cache_bytes().saturating_add(UNTRUSTED_BYTES);
    let bytes = bytes.saturating_add(reserved_bytes as u64);
    let mut limit = getrlimit(Resource::Data);
    let most = limit.maximum.unwrap_or(u64::MAX).min(bytes);
    (limit.current, limit.maximum) = (Some(most), Some(most));
    if let Err(error) = setrlimit(Resource::Data, limit) {
        tracing::warn!(%error, "the memory of this server is not bounded");
    }
}
