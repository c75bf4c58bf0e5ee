//! Fetches container images from registries, by the OCI distribution specification.
//!
//! ```text
//! docker://HOST/NAME:TAG ─► manifest ─► (archive chooses the platform) ─► layers ─► one temporary file
//!        requests: credentials, tokens, redirects, retries          └► Merge::add_remote
//! ```
//! [`RegistryImage`] is the image that a name leads to. Layers are fetched several at once into a temporary
//! file without a name, because the crate `archive` reads them twice and all at once.
//!
//! Invariants:
//! - A registry is not trusted: what it sends is bounded in bytes and in time, and has the digest that the
//!   name or the manifest says.
//! - Credentials go to the registry that they are for and to the token server that it names. They do not
//!   follow a redirect to another host or port.
//! - Nothing is sent without TLS, except to this machine, or where the caller allows it.
#![forbid(unsafe_code)]

mod address;
mod blobs;
mod challenge;
mod credentials;
mod error;
mod http;
mod image;
mod options;
mod reference;
mod retry;
mod session;
mod token;

pub use credentials::CredentialFiles;
pub use error::{Error, Kind, Result};
pub use image::RegistryImage;
pub use options::Options;
pub use reference::Reference;
