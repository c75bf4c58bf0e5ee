//! Renames and removals, while another thread frees the inode and makes a new one with the same name and the
//! same inode number. Each call must work on the inode that the name has when the call changes it.

use throughline::{Error, RenameMode};

use super::*;

/// Accepts failures that the other threads may cause, such as a missing name; not a damaged volume.
fn but_for_others(call: &'static str, done: throughline::Result<()>) -> Check {
    match done {
        Ok(()) | Err(Error::Caller(_)) => Ok(()),
        Err(error) => Err(in_call(call)(error)),
    }
}

pub(super) fn reused(seed: u64, name: &str, scratch: &Scratch) -> Check {
    let device = scratch.device(&shape(name));
    let volume = volume(&device, seed)?;
    let steps = if soak() { 20_000 } else { 2000 };
    let ended = AtomicBool::new(false);
    {
        let (volume, over) = (&volume, &ended);
        let renew_file = move || -> Check {
            for _ in 0..steps {
                but_for_others("create", volume.create_file("/a").map(drop))?;
                but_for_others("remove", volume.remove_file("/a"))?;
            }
            Ok(())
        };
        let renew_dir = move || -> Check {
            for _ in 0..steps {
                but_for_others("mkdir", volume.create_dir("/d").map(drop))?;
                but_for_others("rmdir", volume.remove_dir("/d"))?;
            }
            Ok(())
        };
        let rename = move || -> Check {
            while !over.load(Ordering::Relaxed) {
                let exchanged = volume.rename_with("/a", "/b", RenameMode::Exchange);
                but_for_others("exchange", exchanged)?;
                but_for_others("rename", volume.rename("/a", "/b"))?;
                but_for_others("rename back", volume.rename("/b", "/a"))?;
            }
            Ok(())
        };
        let remove_dir = move || -> Check {
            while !over.load(Ordering::Relaxed) {
                but_for_others("rmdir beside", volume.remove_dir("/d"))?;
            }
            Ok(())
        };
        together(
            vec![Box::new(renew_file), Box::new(renew_dir)],
            vec![Box::new(rename), Box::new(remove_dir)],
            over,
        )?;
    }
    close_and_open(volume, &device, seed, scratch)?
        .close()
        .map_err(in_call("close again"))
}
