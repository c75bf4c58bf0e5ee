//! The table of options, and lists parsed by it.

use std::collections::HashSet;
use std::time::Duration;

use super::*;

fn read(list: &str) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    options.add(list).map_err(|error| error.to_string())?;
    options.check().map_err(|error| error.to_string())?;
    Ok(options)
}

#[track_caller]
fn refused(list: &str, text: &str) {
    match read(list) {
        Ok(_) => panic!("{list} is accepted"),
        Err(error) => assert!(error.contains(text), "{list}: {error}"),
    }
}

#[test]
fn each_name_is_in_the_table_once_and_explained() {
    let mut names = HashSet::new();
    for known in known() {
        assert!(names.insert(known.name), "{}", known.name);
        assert!(
            known.group == Group::Ignored || !known.help.is_empty(),
            "{}",
            known.name
        );
    }
    for (refused, _) in ignored::REFUSED {
        assert!(names.insert(refused), "{refused}");
    }
}

#[test]
fn options_written_by_fstab_mount_and_systemd_are_accepted() {
    for list in [
        "",
        ",",
        "defaults",
        "rw,nosuid,nodev,user=somebody,noexec",
        "noauto,user,users,nofail,_netdev,x-systemd.automount,x-systemd.requires=/x,comment=a b",
        "X-mount.mkdir=0755,auto,loop,owner,group",
        "user_xattr,acl,barrier=1,data=ordered,init_itable=10,delalloc",
        "nonempty,use_ino,kernel_cache,attr_timeout=0,big_writes,max_read=131072",
        "sync_read,no_remote_lock,no_remote_flock,no_remote_posix_lock,splice_read,no_splice_move",
        "modules=,modules=iconv",
        "auto_unmount,direct_io,umask=022,remount,user_id=0,group_id=0",
        "noatime,nodiratime,relatime,norelatime,strictatime,lazytime",
    ] {
        read(list).unwrap_or_else(|error| panic!("{list}: {error}"));
    }
    assert_eq!(read("defaults,nofail,,"), Ok(MountOptions::default()));
}

#[test]
fn options_set_their_fields() {
    let options = read(
        "ro,allow_other,uid=1000,gid=100,offset=2048s,errors=continue,cache_size=64M,commit=30,sync,\
         noatime,noexec",
    )
    .unwrap();
    assert!(options.read_only && options.sync && !options.exec);
    assert_eq!(options.access, Access::All);
    assert_eq!((options.uid, options.gid), (Some(1000), Some(100)));
    assert_eq!(options.offset_bytes, 1 << 20);
    assert_eq!(options.errors, Some(throughline::OnError::Continue));
    assert_eq!(options.cache, Some(CacheSize::Bytes(64 << 20)));
    assert_eq!(options.commit, Some(Duration::from_secs(30)));
    assert_eq!(options.atime, Atime::Never);

    let kernel = read("kernel").unwrap();
    assert_eq!(kernel.access, Access::All);
    assert!(kernel.suid && kernel.dev && kernel.kernel_checks_permissions());
    assert!(!read("fakeroot").unwrap().kernel_checks_permissions());
    assert!(
        read("fakeroot,default_permissions")
            .unwrap()
            .kernel_checks_permissions()
    );
    let parsed = read("norecovery").unwrap();
    assert!(parsed.read_only && parsed.no_replay);
}

#[test]
fn the_last_of_conflicting_options_wins() {
    assert!(!read("ro,rw").unwrap().read_only);
    assert!(!read("kernel,nosuid").unwrap().suid);
    assert_eq!(read("noatime,relatime").unwrap().atime, Atime::Relative);
    assert_eq!(read("commit=30,commit=0").unwrap().commit, None);
    let mut options = read("ro").unwrap();
    options.add("rw").unwrap();
    assert_eq!(options, MountOptions::default());
}

#[test]
fn commas_can_be_part_of_a_value() {
    for list in [r"fsname=a\,b,ro", r#"fsname="a,b",ro"#] {
        let options = read(list).unwrap();
        assert_eq!(options.fs_name.as_deref(), Some("a,b"), "{list}");
        assert!(options.read_only);
    }
    let name = r#"/images/a,"b"\c=d"#;
    let options = read(&format!("fsname={}", list::escape(name))).unwrap();
    assert_eq!(options.fs_name.as_deref(), Some(name));
    // Nothing after the last backslash.
    assert_eq!(read(r"fsname=a\").unwrap().fs_name.as_deref(), Some("a"));
}

#[test]
fn choices_have_names() {
    let options = read("without=readdirplus,with=writeback_cache").unwrap();
    assert!(!options.choices.readdirplus && options.choices.writeback_cache);
    for choice in CHOICES {
        let without = read(&format!("without={}", choice.name)).unwrap();
        assert!(!choice.is_made(&without.choices), "{}", choice.name);
        let with = read(&format!("with={}", choice.name)).unwrap();
        assert!(choice.is_made(&with.choices), "{}", choice.name);
    }
    refused("without=readdir_plus", "did you mean 'readdirplus'?");
    refused("with=zzz", "write one of");
    refused("with", "did you mean");
}

#[test]
fn invalid_options_are_explained() {
    for (list, text) in [
        (
            "noatimes",
            "unknown mount option 'noatimes': did you mean 'noatime'?",
        ),
        ("alow_other", "did you mean 'allow_other'?"),
        (
            "ro,comit=5",
            "unknown mount option 'comit': did you mean 'commit'?",
        ),
        ("qqqqqqqqqq", "unknown mount option 'qqqqqqqqqq'"),
        ("\u{1b}[31m", "\\u{1b}"),
        ("commit", "write commit=SECONDS"),
        ("commit=x", "write a number of seconds"),
        ("ro=1", "it takes no value"),
        ("uid=root", "id -u"),
        ("gid=4294967295", "id -g"),
        ("offset=4q", "write a number of bytes"),
        ("cache_size=64", "too little"),
        ("cache_size=0%", "between 1% and 90%"),
        ("cache_size=91%", "between 1% and 90%"),
        ("errors=ignore", "remount-ro"),
        ("user_id=0", "cannot be chosen"),
        ("umask=999", "octal"),
        ("umask=+7", "octal"),
        ("modules=subdir", "bind"),
        ("from_code=latin1", "UTF-8"),
        ("nobarrier", "flushes"),
        ("barrier=0", "flushes"),
        ("data=journal", "data=ordered"),
        ("fsname=", "write a name"),
        ("log=loud", "write off"),
        ("noload", "add 'ro'"),
        ("resize,ro", "does not go with 'ro'"),
    ] {
        refused(list, text);
    }
    let error = read("qqqqqqqqqq").unwrap_err();
    assert!(!error.contains("did you mean"), "{error}");
}

#[test]
fn add_known_skips_only_unknown_options() {
    let mut options = MountOptions::default();
    options
        .add_known("ro,no_such_thing,noexec=yes")
        .unwrap_err();
    options.add_known("no_such_thing,noexec").unwrap();
    assert!(options.read_only && !options.exec);
}

#[test]
fn the_default_cache_is_small() {
    let quarter = throughline::internal::default_budget_bytes();
    let usual = MountOptions::default().cache_bytes();
    assert_eq!(usual, quarter.min(256 << 20));
    assert_eq!(read("cache_size=1G").unwrap().cache_bytes(), 1 << 30);
}

#[test]
fn a_share_of_memory_becomes_bytes() {
    assert_eq!(CacheSize::Bytes(1 << 20).bytes(), 1 << 20);
    let half = CacheSize::Percent(50).bytes();
    assert!(
        half >= MIN_CACHE_BYTES
            && half <= throughline::internal::allowed_bytes().max(MIN_CACHE_BYTES)
    );
}
