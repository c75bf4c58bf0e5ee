//! Images of containers: an OCI layout (a directory, or a tar of one: `oci-archive`) and what `docker save`
//! writes (`docker-archive`). Their layers are merged in order, with whiteouts.

mod blobs;
mod json;
mod layers;

pub(crate) use blobs::{Store, is_image_name, probe, probe_input};
pub use layers::Platform;
pub(crate) use layers::{Layer, layers_of, scan_layers};
