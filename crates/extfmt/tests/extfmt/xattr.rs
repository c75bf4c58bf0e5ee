//! Extended attributes: lists are read back from both areas, and damage is refused.

use proptest::prelude::*;
use throughline_extfmt::xattr::{self, Attribute, Value};
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};
use throughline_testkit::cases::config;

fn attributes() -> impl Strategy<Value = Vec<Attribute>> {
    let value = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Value::Bytes),
        1 => (1u32..1000, 0u32..100_000, any::<u32>())
            .prop_map(|(inode, size, hash)| Value::Inode { inode: InodeNumber(inode), size, hash }),
    ];
    let name = proptest::collection::vec(1u8..=255, 1..30);
    let one = (1u8..=8, name, value).prop_map(|(name_index, name, value)| Attribute {
        name_index,
        name,
        value,
    });
    proptest::collection::vec(one, 0..12)
}

fn bytes_needed(list: &[Attribute]) -> usize {
    let pad = |len: usize| len.div_ceil(4) * 4;
    list.iter()
        .map(|attribute| {
            let value = match &attribute.value {
                Value::Bytes(bytes) => pad(bytes.len()),
                Value::Inode { .. } => 0,
            };
            16 + pad(attribute.name.len()) + value
        })
        .sum()
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn inode_areas_round_trip(list in attributes(), quarter in 1usize..300) {
        let mut area = vec![0xEEu8; quarter * 4];
        let before = area.clone();
        let written = xattr::write_ibody(&mut area, &list);
        let needed = if list.is_empty() { 0 } else { 8 + bytes_needed(&list) };
        prop_assert_eq!(written, needed <= area.len());
        if written {
            prop_assert_eq!(xattr::read_ibody(&area), Ok(list));
        } else {
            prop_assert_eq!(area, before);
        }
    }

    #[test]
    fn blocks_round_trip_sorted(list in attributes()) {
        let mut block = vec![0u8; 1024];
        let written = xattr::write_block(&mut block, &list);
        prop_assert_eq!(written, 36 + bytes_needed(&list) <= 1024);
        if written {
            let mut sorted = list;
            sorted.sort_by_key(|a| (a.name_index, a.name.len(), a.name.clone()));
            prop_assert_eq!(xattr::read_block(&block), Ok(sorted));
            prop_assert_eq!(xattr::header(&block).unwrap().h_refcount.get(), 1);
            xattr::set_refcount(&mut block, 7);
            xattr::update_checksum(&mut block, FsBlock(3), Some(1));
            prop_assert_eq!(xattr::verify_checksum(&block, FsBlock(3), Some(1)), Ok(()));
            prop_assert!(xattr::verify_checksum(&block, FsBlock(4), Some(1)).is_err());
            prop_assert!(xattr::write_block(&mut block, &[]));
            prop_assert_eq!(xattr::header(&block).unwrap().h_refcount.get(), 7);
        }
    }

    #[test]
    fn the_room_is_exact(list in attributes(), quarter in 1usize..300) {
        let area = vec![0u8; quarter * 4];
        let with = |len: usize| {
            let mut list = list.clone();
            let value = Value::Bytes(vec![1; len]);
            list.push(Attribute { name_index: 7, name: b"data".to_vec(), value });
            xattr::write_ibody(&mut area.clone(), &list)
        };
        match xattr::ibody_room(area.len(), &list, b"data") {
            Some(room) => prop_assert!(with(room) && !with(room + 1)),
            None => prop_assert!(!with(0)),
        }
    }
}

fn sample() -> Vec<u8> {
    let value = Value::Bytes(b"value".to_vec());
    let list = [Attribute {
        name_index: 1,
        name: b"name".to_vec(),
        value,
    }];
    let mut block = vec![0u8; 1024];
    assert!(xattr::write_block(&mut block, &list));
    block
}

#[test]
fn damage_is_refused() {
    assert_eq!(xattr::read_block(&sample()).unwrap().len(), 1);
    // Magic, number of blocks, name past the block, value past it, value over the list, size.
    for (byte, bytes) in [
        (0, &[1][..]),
        (8, &[2]),
        (32 + 2, &[0xFF, 0xFF]),
        (32 + 2, &[40, 0]),
        (32 + 8, &[0xFF, 0xFF, 0xFF, 0xFF]),
        (32 + 4, &[1, 0, 0, 0, 1, 0, 0, 2]),
    ] {
        let mut bad = sample();
        bad[byte..][..bytes.len()].copy_from_slice(bytes);
        assert!(xattr::read_block(&bad).is_err(), "byte {byte}");
    }
    // A list without an end.
    let mut bad = sample();
    bad[32..].fill(1);
    assert!(xattr::read_block(&bad).is_err());
    // Without a header there are no attributes in an inode.
    assert_eq!(xattr::read_ibody(&[0xFF; 100]), Ok(Vec::new()));
    assert_eq!(xattr::read_ibody(&[]), Ok(Vec::new()));
}

#[test]
fn names_have_prefixes() {
    for (full, index, rest) in [
        (&b"user.a"[..], 1, &b"a"[..]),
        (b"system.posix_acl_access", 2, b""),
        (b"system.posix_acl_default", 3, b""),
        (b"trusted.x.y", 4, b"x.y"),
        (b"security.selinux", 6, b"selinux"),
        (b"system.data", 7, b"data"),
    ] {
        assert_eq!(xattr::split_name(full), Some((index, rest)));
        let value = Value::Bytes(Vec::new());
        let attribute = Attribute {
            name_index: index,
            name: rest.to_vec(),
            value,
        };
        assert_eq!(attribute.full_name().as_deref(), Some(full));
    }
    for none in [&b"user."[..], b"other.a", b"", b"user"] {
        assert_eq!(xattr::split_name(none), None);
    }
}

#[test]
fn values_count_their_references() {
    let mut inode = InodeImage::new(256, 0);
    xattr::set_value_refcount(&mut inode, 0x1_0000_0002);
    assert_eq!(xattr::value_refcount(&inode), 0x1_0000_0002);
}
