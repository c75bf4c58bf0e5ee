//! All public types are `Debug`, `Send` and `Sync`, as the documentation says: checked by the compiler, and
//! that none is left out by the list of the crate's root.

use std::collections::BTreeSet;
use std::fmt::Debug;

use throughline::*;

/// The names of the types, after the compiler has accepted them.
macro_rules! types {
    ($($name:ident $(<$of:ty>)?),* $(,)?) => {{
        fn check<T: Debug + Send + Sync>() {}
        $(check::<$name $(<$of>)?>();)*
        BTreeSet::from([$(stringify!($name)),*])
    }};
}

#[test]
fn every_type_is_debug_send_and_sync() {
    let checked = types![
        Abort,
        AccessTimes,
        Acl,
        AclEntry,
        AclTag,
        Advice,
        AlignedBuf,
        Attributes,
        Backing,
        BioInfo,
        CacheState,
        CacheStatus,
        Caller,
        CallerFault,
        Corrupt,
        Cursor<&'static Handle>,
        DeviceError,
        DeviceNumber,
        DeviceState,
        Dir,
        DirBuilder,
        DirEntry,
        DirtyLimits,
        DirtyStatus,
        Doubtful,
        EngineChoice,
        Error,
        Event,
        Fallocate,
        File,
        FileOptions,
        FileType,
        FoundHashTree,
        Format,
        Handle,
        ImageOptions,
        InodeFlags,
        IoStatus,
        JournalCounts,
        JournalState,
        JournalStatus,
        KernelHolder,
        Limits,
        Listed,
        LogInfo,
        Memory,
        Made,
        Metadata,
        MetadataStatus,
        MkfsConfig,
        MkfsError,
        MkfsOptions,
        NewNode,
        NewSize,
        Node,
        NotExt,
        OnError,
        Op,
        OpenFor,
        OpenOptions,
        OtherBase,
        OrphansProcessed,
        PackInto,
        PackedInto,
        NotAllowed,
        NotWhole,
        OnlyRead,
        Partition,
        PartitionError,
        PartitionTable,
        PartitionVolume,
        Pauses,
        Purpose,
        QuotaLimits,
        RawFile,
        ReadDir,
        Reason,
        Recovery,
        RecoveryReport,
        RenameMode,
        Replayed,
        ResizeError,
        ResizeReport,
        Resized,
        Result<()>,
        SplitReason,
        StatFs,
        Subscription,
        SyncRange,
        TakeDown,
        ThrottleState,
        Tuning,
        UnknownFormat,
        Volume,
        VolumeInfo,
        VolumeOptions,
        VolumeSize,
        VolumeStatus,
        Walk,
        WalkEntry,
        WritebackCounts,
        WritebackStatus,
        XattrMode,
        Xattrs,
    ];
    #[cfg(feature = "remote")]
    let _ = types![ObjectFailure];
    let root = include_str!("../../src/lib.rs");
    let exported = root.split("\npub use ").skip(1);
    let exported = exported.flat_map(|list| {
        let list = list.split(';').next().unwrap_or_default();
        list.split([',', '{', '}'])
            .filter_map(|item| item.rsplit([':', ' ', '\n']).find(|name| !name.is_empty()))
            .filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
    });
    // Traits.
    let mut others = BTreeSet::from(["Clock", "Device", "Listener"]);
    // Only there with a feature.
    others.insert("ObjectFailure");
    let exported: BTreeSet<&str> = exported.collect();
    let known = &checked | &others;
    let missing: Vec<_> = exported.difference(&known).collect();
    assert!(missing.is_empty(), "not checked: {missing:?}");
}
