//! `label` and `uuid`: the identification of a volume.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use clap::Args;
use uuid::Uuid;

use super::df::image_of;
use crate::context::Context;
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::quote;

/// Arguments of `label`.
#[derive(Args, Debug)]
pub(crate) struct LabelArgs {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: Place,
    /// The new label, at most 16 bytes; '' removes it. Without it, the label is shown
    label: Option<OsString>,
}

/// Arguments of `uuid`.
#[derive(Args, Debug)]
pub(crate) struct UuidArgs {
    /// Images
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<Place>,
    /// Set this UUID, a random or time-based one, or none
    #[arg(short = 'U', long, value_name = "UUID|random|time|clear", value_parser = NewUuid::parse)]
    set: Option<NewUuid>,
}

/// The new UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewUuid {
    This(Uuid),
    /// A different one for each image.
    Random,
    /// A different one for each image, made from the time (version 1).
    Time,
}

impl NewUuid {
    pub(super) fn parse(text: &str) -> Result<NewUuid, String> {
        match text {
            "random" => Ok(NewUuid::Random),
            "time" => Ok(NewUuid::Time),
            "clear" | "null" => Ok(NewUuid::This(Uuid::nil())),
            text => Uuid::parse_str(text).map(NewUuid::This).map_err(|error| {
                format!("not a UUID ({error}): write it as in /etc/fstab, or random, time or clear")
            }),
        }
    }

    /// Its bytes, or new ones.
    pub(super) fn bytes(self) -> [u8; 16] {
        match self {
            NewUuid::This(uuid) => uuid.into_bytes(),
            NewUuid::Random => Uuid::new_v4().into_bytes(),
            NewUuid::Time => of_now().into_bytes(),
        }
    }
}

/// A UUID of version 1 (RFC 9562, 5.1). Its node is random, and marked so by the multicast bit.
fn of_now() -> Uuid {
    /// From 1582-10-15 to 1970, in units of 100 ns.
    const BEFORE_1970: u64 = 0x01b2_1dd2_1381_4000;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ticks = since_1970.map_or(0, |since| since.as_nanos() / 100) as u64;
    let [a, b, _, _, _, _, _, _, _, _, node @ ..] = Uuid::new_v4().into_bytes();
    let mut node: [u8; 6] = node;
    node[0] |= 1;
    let counter = u16::from_be_bytes([a, b]) & 0x3fff;
    uuid::Builder::from_gregorian_timestamp(BEFORE_1970.wrapping_add(ticks), counter, &node)
        .into_uuid()
}

/// Shows or sets the label.
pub(crate) fn label(args: &LabelArgs, context: &mut Context) -> Result<(), Failure> {
    use std::os::unix::ffi::OsStringExt;
    let image = image_of(&args.image)?;
    let Some(label) = &args.label else {
        let label = OsString::from_vec(context.open_image(&image)?.label());
        return context.out.name_line(label);
    };
    let (_, volume) = context.images.open_image(&image, Access::Write)?;
    volume
        .set_label(label.as_bytes())
        .doing(|| format!("cannot set the label of {}", quote(&image)))
}

/// Shows or sets the UUIDs.
pub(crate) fn uuid(args: &UuidArgs, context: &mut Context) -> Result<(), Failure> {
    context.each(&args.images, |context, place| {
        let image = image_of(place)?;
        let Some(new) = args.set else {
            let volume = context.open_image(&image)?;
            let uuid = Uuid::from_bytes(volume.uuid());
            return context.out.line(uuid.to_string());
        };
        let (_, volume) = context.images.open_image(&image, Access::Write)?;
        volume
            .set_uuid(new.bytes())
            .doing(|| format!("cannot set the UUID of {}", quote(&image)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_as_they_are_written() {
        let uuid = "01234567-89ab-cdef-0123-456789ABCDEF";
        assert!(matches!(NewUuid::parse(uuid), Ok(NewUuid::This(_))));
        assert_eq!(NewUuid::parse("clear"), Ok(NewUuid::This(Uuid::nil())));
        let now = || {
            let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            since_1970.unwrap().as_secs()
        };
        let before = now();
        let by_time = Uuid::from_bytes(NewUuid::parse("time").unwrap().bytes());
        let (seconds, _) = by_time.get_timestamp().unwrap().to_unix();
        assert!((before..=now()).contains(&seconds), "{by_time}");
        assert_eq!(by_time.get_version_num(), 1);
        for bad in ["", "01234567", "01234567-89ab-cdef-0123-456789ABCDEG"] {
            assert!(NewUuid::parse(bad).is_err(), "{bad}");
        }
    }
}
