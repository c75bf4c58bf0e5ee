//! `cat`.

use std::io::Read;

use clap::Args;

use crate::context::Context;
use crate::copy::{ImageContent, ToStdout};
use crate::images::Access;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Doing, Failure};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Arguments of `cat`.
#[derive(Args, Debug)]
pub(crate) struct CatArgs {
    /// Files in images, on the host, or - for standard input; * and ? match names in images
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<Place>,
}

/// Writes each file to standard output.
pub(crate) fn run(args: &CatArgs, context: &mut Context) -> Result<(), Failure> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut to_stdout = ToStdout::new()?;
    let places = context.expand(&args.places, Purpose::Read)?;
    context.each(&places, |context, place| match place {
        Place::Stream => copy(&mut std::io::stdin().lock(), &mut buffer, place, context),
        Place::Host(path) => {
            let mut file = std::fs::File::open(path).doing(|| format!("cannot open {place}"))?;
            copy(&mut file, &mut buffer, place, context)
        }
        Place::Image { .. } => {
            let opened = context.open(place, Access::Read)?;
            let file = opened
                .volume
                .open_file(&opened.path)
                .doing(|| format!("cannot open {place}"))?;
            let content = ImageContent::new(file, opened.image, context.images.long_calls());
            // The copy bypasses the output's buffer.
            context.out.flush()?;
            to_stdout.copy(&content, place, context.interrupt())
        }
    })?;
    context.out.flush()?;
    to_stdout.close()
}

fn copy(
    from: &mut dyn Read,
    buffer: &mut [u8],
    place: &Place,
    context: &mut Context,
) -> Result<(), Failure> {
    loop {
        match from.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => context.out.bytes(&buffer[..got])?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).doing(|| format!("cannot read {place}")),
        }
    }
}
