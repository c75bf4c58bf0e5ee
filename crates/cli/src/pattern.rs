//! Expands patterns in places of an image, such as `IMAGE:/a/*`. A shell can expand only paths of the host.
//!
//! If a file with exactly that name exists, the place refers to that file. A pattern without a match is kept
//! unchanged.

use throughline_forms::paths::{is_pattern, matching};

use crate::images::{Access, Images};
use crate::place::Place;
use crate::problem::{Failure, Problem};

/// The places that the arguments refer to. Images are opened with `access`.
pub(crate) fn expand(
    images: &mut Images,
    places: &[Place],
    access: Access,
) -> Result<Vec<Place>, Failure> {
    let mut expanded = Vec::with_capacity(places.len());
    for place in places {
        match place {
            Place::Image { image, path } if is_pattern(path.as_os_str()) => {
                // If the image does not open, the error is reported when the command opens it.
                let Ok(opened) = images.open(place, access) else {
                    expanded.push(place.clone());
                    continue;
                };
                let matches = matching(&opened.volume, path)
                    .ok_or_else(|| Problem::new("too many files match").met(place.to_string()))?;
                if matches.is_empty() {
                    expanded.push(place.clone());
                }
                let image = image.clone();
                expanded.extend(matches.into_iter().map(|path| Place::Image {
                    image: image.clone(),
                    path,
                }));
            }
            _ => expanded.push(place.clone()),
        }
    }
    Ok(expanded)
}
