//! Options of access times and change times.

use super::{Known, flag, sets};
use crate::options::group::Group;
use crate::options::{Atime, MountOptions};

pub(super) const TABLE: &[Known] = &[
    flag(
        "relatime",
        Group::Times,
        "a read sets the access time if it is older than the last change, or than a day (the default)",
        relatime,
    ),
    flag(
        "noatime",
        Group::Times,
        "reads do not set the access time",
        sets!(atime = Atime::Never),
    ),
    flag(
        "strictatime",
        Group::Times,
        "every read sets the access time",
        sets!(atime = Atime::Always),
    ),
    flag(
        "norelatime",
        Group::Times,
        "the same as strictatime",
        sets!(atime = Atime::Always),
    ),
    flag("atime", Group::Times, "the same as relatime", relatime),
    flag(
        "nodiratime",
        Group::Times,
        "reading a directory does not set its access time",
        sets!(dir_atime = false),
    ),
    flag(
        "diratime",
        Group::Times,
        "reading a directory sets its access time like a file's (the default)",
        sets!(dir_atime = true),
    ),
    flag(
        "lazytime",
        Group::Times,
        "changes that affect only times are written with the next other change of the file, a sync, or its \
         last close",
        sets!(lazytime = true),
    ),
    flag(
        "nolazytime",
        Group::Times,
        "times are written like other changes (the default)",
        sets!(lazytime = false),
    ),
];

fn relatime(options: &mut MountOptions, _: &str) -> Result<(), String> {
    options.atime = Atime::Relative;
    options.relatime_said = true;
    Ok(())
}
