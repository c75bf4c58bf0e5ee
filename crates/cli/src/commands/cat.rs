//! `cat`.

use std::io::Read;

use clap::Args;

use crate::context::Context;
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 4 << 20;

/// Arguments of `cat`.
#[derive(Args, Debug)]
pub(crate) struct CatArgs {
    /// Files in images, on the host, or - for standard input
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<Place>,
}

/// Writes each file to standard output.
pub(crate) fn run(args: &CatArgs, context: &mut Context) -> Result<(), Failure> {
    let mut buffer = throughline::AlignedBuf::zeroed(CHUNK_BYTES, 4096);
    let places = context.expand(&args.places, Access::Read)?;
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
            let mut offset = 0;
            loop {
                let got = file
                    .read_at(&mut buffer, offset)
                    .doing(|| format!("cannot read {place}"))?;
                if got == 0 {
                    return Ok(());
                }
                context.out.bytes(&buffer[..got])?;
                offset += got as u64;
            }
        }
    })
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
