//! ACLs: both forms, well-formedness, and conversion to and from permission bits.

use proptest::prelude::*;
use throughline_extfmt::acl::{Acl, Entry, Refused, Tag};
use throughline_testkit::cases::config;

fn entry(tag: Tag, rights: u16, id: u32) -> Entry {
    Entry { tag, rights, id }
}

fn named() -> Acl {
    Acl::new(vec![
        entry(Tag::Owner, 7, u32::MAX),
        entry(Tag::User, 6, 1000),
        entry(Tag::Group, 5, u32::MAX),
        entry(Tag::NamedGroup, 4, 50),
        entry(Tag::Mask, 6, u32::MAX),
        entry(Tag::Others, 1, u32::MAX),
    ])
    .expect("well formed")
}

/// The on-disk bytes that the kernel stores for `setfacl`.
#[test]
fn both_forms_are_what_they_should_be() {
    let disk = [
        1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 6, 0, 0xE8, 3, 0, 0, 4, 0, 5, 0, 8, 0, 4, 0, 50, 0, 0, 0, 16,
        0, 6, 0, 32, 0, 1, 0,
    ];
    assert_eq!(named().to_disk(), disk);
    assert_eq!(Acl::from_disk(&disk), Ok(named()));
    let user = named().to_user();
    assert_eq!(user[..12], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255]);
    assert_eq!(user.len(), 4 + 6 * 8);
    assert_eq!(Acl::from_user(&user), Ok(Some(named())));
    assert_eq!(Acl::from_user(&[]), Ok(None));
    assert_eq!(Acl::from_user(&user[..4]), Ok(None));
}

#[test]
fn malformed_lists_are_refused() {
    let good = named().entries().to_vec();
    let without = |at: usize| {
        let mut bad = good.clone();
        bad.remove(at);
        Acl::new(bad)
    };
    for needed in [0, 2, 4, 5] {
        assert_eq!(without(needed), None, "entry {needed}");
    }
    assert!(without(1).is_some() && without(3).is_some());
    let with = |change: fn(&mut Vec<Entry>)| {
        let mut bad = good.clone();
        change(&mut bad);
        Acl::new(bad)
    };
    assert_eq!(with(|list| list.swap(0, 1)), None);
    assert_eq!(with(|list| list[1].rights = 8), None);
    assert_eq!(with(|list| list[1].id = u32::MAX), None);
    assert_eq!(with(|list| list.insert(4, list[4])), None);
    let mut user = named().to_user();
    user[0] = 1;
    assert_eq!(Acl::from_user(&user), Err(Refused::Version));
    user[0] = 2;
    user[4] = 3;
    assert_eq!(Acl::from_user(&user), Err(Refused::Malformed));
    assert_eq!(Acl::from_user(&[2]), Err(Refused::Malformed));
    let disk = named().to_disk();
    for len in 0..disk.len() {
        assert!(Acl::from_disk(&disk[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn permissions_and_lists_follow_each_other() {
    assert_eq!(named().permissions(), (0o761, false));
    let mut list = named();
    list.set_permissions(0o4750);
    assert_eq!(list.permissions(), (0o750, false));
    // The group's entry stays: the group bits set the mask.
    assert_eq!(list.entries()[2].rights, 5);
    let (list, bits) = named().inherited(0o1666);
    assert_eq!(bits, 0o660);
    assert_eq!(list.expect("a list").permissions(), (0o660, false));
    let plain = Acl::new(vec![
        entry(Tag::Owner, 7, u32::MAX),
        entry(Tag::Group, 5, u32::MAX),
        entry(Tag::Others, 5, u32::MAX),
    ])
    .expect("well formed");
    assert_eq!(plain.permissions(), (0o755, true));
    assert_eq!(plain.inherited(0o666), (None, 0o644));
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn lists_that_parse_are_written_back(bytes in proptest::collection::vec(0u8..40, 0..80)) {
        if let Ok(list) = Acl::from_disk(&bytes) {
            prop_assert_eq!(list.to_disk(), bytes);
        } else if let Ok(Some(list)) = Acl::from_user(&bytes) {
            prop_assert_eq!(Acl::from_user(&list.to_user()), Ok(Some(list)));
        }
    }
}
