//! Limits on what sources may need.

/// What all sources together may need. Archives are hostile until proven otherwise: a few KiB of compressed
/// data can hold terabytes. The defaults fit every sane image; lower them to what the target has room for.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Nodes and names of the tree. Default: 64 Mi.
    pub nodes: u32,
    /// Bytes of all files' contents, holes not counted. Default: 16 TiB.
    pub data_bytes: u64,
    /// Bytes that a compressed stream may hold once decompressed. Default: 16 TiB.
    pub stream_bytes: u64,
    /// Bytes of a temporary file that keeps what cannot be read twice. Default: 64 GiB.
    pub spool_bytes: u64,
    /// Bytes of all names and symlink targets together. Default: 1 GiB; at most 4 GiB.
    pub name_bytes: u32,
    /// Names and values of one node's attributes. Default: 1 MiB.
    pub xattr_bytes: u32,
    /// Distinct attribute sets of the tree, in bytes. Default: 256 MiB.
    pub all_xattr_bytes: u32,
    /// Components of a path. Default: 1024.
    pub depth: u32,
    /// Data extents of one file. Default: 1 Mi.
    pub extents: u32,
    /// Memory of the extents of all files that have more than one: entries of 24 bytes. Default: 16 Mi.
    pub all_extents: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            nodes: 64 << 20,
            data_bytes: 16 << 40,
            stream_bytes: 16 << 40,
            spool_bytes: 64 << 30,
            name_bytes: 1 << 30,
            xattr_bytes: 1 << 20,
            all_xattr_bytes: 256 << 20,
            depth: 1024,
            extents: 1 << 20,
            all_extents: 16 << 20,
        }
    }
}
