//! Container images: an OCI layout (a directory, or a tar of one: `oci-archive`), what `docker save`
//! writes (`docker-archive`), and those that are fetched. Their layers are merged in order, with whiteouts.

mod blobs;
mod json;
mod layers;
mod remote;
mod sum;

pub(crate) use blobs::{Store, is_image_name, probe, probe_input};
pub use layers::Platform;
pub(crate) use layers::{Layer, layers_of, scan_layers};
pub use remote::{Blob, Fetched, RemoteImage};
pub use sum::DigestSum;
