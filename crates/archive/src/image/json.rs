//! The JSON documents of images, as far as they are needed, from the OCI image specification and from what
//! `docker save` writes.

use std::collections::HashMap;

use serde::Deserialize;

/// A reference to a blob.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) platform: Option<PlatformJson>,
    #[serde(default)]
    pub(super) annotations: HashMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PlatformJson {
    pub(super) os: String,
    pub(super) architecture: String,
    pub(super) variant: Option<String>,
}

/// `index.json`, an index below it (these have manifests), or a manifest (which has layers).
#[derive(Debug, Deserialize)]
pub(super) struct Document {
    pub(super) manifests: Option<Vec<Descriptor>>,
    pub(super) layers: Option<Vec<Descriptor>>,
    pub(super) config: Option<Descriptor>,
}

/// An image in the `manifest.json` of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerImage {
    pub(super) config: String,
    #[serde(default)]
    pub(super) repo_tags: Option<Vec<String>>,
    pub(super) layers: Vec<String>,
}

/// An image's configuration.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Config {
    pub(super) os: Option<String>,
    pub(super) architecture: Option<String>,
    pub(super) variant: Option<String>,
    #[serde(default)]
    pub(super) rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RootFs {
    pub(super) diff_ids: Vec<String>,
}
