//! `label` and `uuid`: what a volume is called.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use super::df::image_of;
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::{printable, quote};

/// Arguments of `label`.
#[derive(Args, Debug)]
pub(crate) struct LabelArgs {
    /// The image
    #[arg(value_name = "IMAGE", value_parser = place_parser())]
    image: Place,
    /// The new label, of at most 16 bytes; '' takes it away. Without it, the label is shown
    label: Option<OsString>,
}

/// Arguments of `uuid`.
#[derive(Args, Debug)]
pub(crate) struct UuidArgs {
    /// Images
    #[arg(required = true, value_name = "IMAGE", value_parser = place_parser())]
    images: Vec<Place>,
}

/// Shows the label, or sets it.
pub(crate) fn label(args: &LabelArgs, context: &mut Context) -> Result<(), Failure> {
    use std::os::unix::ffi::OsStringExt;
    let image = image_of(&args.image)?;
    let Some(label) = &args.label else {
        let label = OsString::from_vec(context.open_image(&image)?.label());
        let shown = printable(&label, context.out.terminal).into_owned();
        return context.out.line(shown);
    };
    let (_, volume) = context.images.open_image(&image, Access::Write)?;
    volume
        .set_label(label.as_bytes())
        .doing(|| format!("cannot set the label of {}", quote(&image)))
}

/// Shows the UUIDs.
pub(crate) fn uuid(args: &UuidArgs, context: &mut Context) -> Result<(), Failure> {
    context.each(&args.images, |context, place| {
        let image = image_of(place)?;
        let info = context
            .open_image(&image)?
            .info()
            .doing(|| format!("cannot read {}", quote(&image)))?;
        context.out.line(info.uuid)
    })
}
