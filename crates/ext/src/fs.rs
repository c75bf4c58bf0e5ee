//! [`Fs`], an open volume.

pub struct Fs {
    pub(crate) disk: Arc<Disk>,
    pub(crate) journal: Journal,
    pub(crate) geo: Geometry,
    pub(crate) rename_lock: Mutex<()>,   // via fs.lock_rename() -> Held<..>
    pub(crate) inodes: InodeTable,
    ..
}
impl Fs {
    pub fn open(disk: Arc<Disk>, options: OpenOptions) -> Result<Fs>;
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>>;   // refuses when read-only
    pub(crate) fn lock_rename(&self) -> Held<MutexGuard<'_, ()>>;
    pub(crate) fn now(&self) -> Timestamp;
    pub(crate) fn read(&self, block: FsBlock) -> Result<Block>;           // metadata block, cached snapshot
    pub(crate) fn read_checked(&self, block: FsBlock, check: impl FnOnce(&[u8]) -> Result<(), extfmt::Corrupt>) -> Result<Block>;
    pub(crate) fn block_bytes(&self) -> u32;  block_shift
    pub(crate) fn is_read_only(&self) -> bool; read_only_reason() -> Option<String>
    pub fn sync(&self) -> Result<()>;  pub fn close(self) -> Result<()>;
    features: has_extents()/metadata_csum()/dir_index ... from extfmt Features at self.geo.features (or so); csum_seed: self.geo.csum_seed
}
