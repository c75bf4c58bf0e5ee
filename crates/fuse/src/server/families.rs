//! [`Families`]: all families of requests, each with the parts of the mount that it needs.

use std::sync::{Arc, OnceLock};

use throughline::Volume;
use throughline::internal::VolumeLayers;

use super::attributes::AttributeRequests;
use super::creation::CreationRequests;
use super::data::DataRequests;
use super::directories::DirectoryRequests;
use super::identity::Identity;
use super::ioctls::IoctlRequests;
use super::names::NameRequests;
use super::shown::Shown;
use super::space::SpaceRequests;
use super::xattrs::XattrRequests;
use crate::files::Files;
use crate::nodes::Nodes;
use crate::options::MountOptions;
use crate::turns::Turns;

/// See the head of this file.
pub(super) struct Families {
    pub(super) attributes: AttributeRequests,
    pub(super) creation: CreationRequests,
    pub(super) data: DataRequests,
    pub(super) directories: DirectoryRequests,
    pub(super) ioctls: IoctlRequests,
    pub(super) names: NameRequests,
    pub(super) space: SpaceRequests,
    pub(super) xattrs: XattrRequests,
}

/// The parts of a mount that several families share.
pub(super) struct Shared<'a> {
    pub(super) volume: &'a Volume,
    pub(super) nodes: &'a Arc<Nodes>,
    pub(super) files: &'a Arc<Files>,
    pub(super) turns: &'a Arc<Turns>,
    pub(super) identity: &'a Arc<Identity>,
    /// The kernel opens files without a request.
    pub(super) no_open: bool,
}

/// Whether files are opened without a request. The server then takes no part in opening files: the kernel
/// uses its cache for every file but a new one, and keeps cached data across opens. So the mount must not
/// have `direct_io`, it must be read-only or have `small_files`, and no file may be encrypted or, on a
/// writable mount, have fs-verity, because opening one without its key, or to write it, has to fail.
pub(super) fn opens_without_request(volume: &Volume, options: &MountOptions) -> bool {
    let is_possible = options.read_only || options.small_files;
    let protects =
        has_feature(volume, "encrypt") || !options.read_only && has_feature(volume, "verity");
    is_possible && !options.choices.direct_io && !protects
}

/// Whether the volume has a feature.
fn has_feature(volume: &Volume, feature: &str) -> bool {
    volume
        .fs()
        .geometry()
        .feature_names()
        .iter()
        .any(|name| name == feature)
}

impl Families {
    /// `long_setxattr`: `FUSE_SETXATTR_EXT` was negotiated.
    pub(super) fn new(shared: Shared<'_>, options: &MountOptions, long_setxattr: bool) -> Families {
        let Shared {
            volume,
            nodes,
            files,
            turns,
            identity,
            no_open,
        } = shared;
        let shown = Arc::new(Shown::new(volume, Arc::clone(identity), &options.choices));
        Families {
            attributes: AttributeRequests {
                nodes: Arc::clone(nodes),
                files: Arc::clone(files),
                identity: Arc::clone(identity),
                shown: Arc::clone(&shown),
            },
            creation: CreationRequests {
                nodes: Arc::clone(nodes),
                files: Arc::clone(files),
                shown: Arc::clone(&shown),
                no_open,
                acl: options.acl,
                group_of_directory: options.group_of_directory,
            },
            data: DataRequests {
                nodes: Arc::clone(nodes),
                files: Arc::clone(files),
                identity: Arc::clone(identity),
                turns: Arc::clone(turns),
                no_open,
            },
            directories: DirectoryRequests {
                volume: volume.clone(),
                nodes: Arc::clone(nodes),
                shown: Arc::clone(&shown),
            },
            ioctls: IoctlRequests {
                volume: volume.clone(),
                nodes: Arc::clone(nodes),
                outside: OnceLock::new(),
            },
            names: NameRequests {
                nodes: Arc::clone(nodes),
                shown,
                // Adding one spelling of a name would leave the others cached as missing.
                negative_cache: !has_feature(volume, "casefold"),
            },
            space: SpaceRequests::new(volume, nodes, options),
            xattrs: XattrRequests {
                nodes: Arc::clone(nodes),
                files: Arc::clone(files),
                identity: Arc::clone(identity),
                long_setxattr,
                user_xattr: options.user_xattr,
                untrusted: options.untrusted,
            },
        }
    }
}
