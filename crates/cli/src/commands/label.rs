//! `label` and `uuid`: the identification of a volume.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

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
    /// Set this UUID, a random one, or none
    #[arg(short = 'U', long, value_name = "UUID|random|clear", value_parser = NewUuid::parse)]
    set: Option<NewUuid>,
}

/// The new UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewUuid {
    This(Uuid),
    /// A different one for each image.
    Random,
}

impl NewUuid {
    pub(super) fn parse(text: &str) -> Result<NewUuid, String> {
        match text {
            "random" => Ok(NewUuid::Random),
            "clear" | "null" => Ok(NewUuid::This(Uuid::nil())),
            text => Uuid::parse_str(text).map(NewUuid::This).map_err(|error| {
                format!("not a UUID ({error}): write it as in /etc/fstab, or random, or clear")
            }),
        }
    }

    /// Its bytes, or random ones.
    pub(super) fn bytes(self) -> [u8; 16] {
        match self {
            NewUuid::This(uuid) => uuid.into_bytes(),
            NewUuid::Random => Uuid::new_v4().into_bytes(),
        }
    }
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
        for bad in [
            "",
            "01234567",
            "time",
            "01234567-89ab-cdef-0123-456789ABCDEG",
        ] {
            assert!(NewUuid::parse(bad).is_err(), "{bad}");
        }
    }
}
