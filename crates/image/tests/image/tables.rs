//! Tables made by hand, damaged ones, and any bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use throughline_image::{Error, ReadAt, Table};
use throughline_testkit::cases::config;

const SECTOR: u64 = 512;

fn disk(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn table(bytes: &[u8]) -> Option<Table> {
    Table::read(&disk(bytes)).unwrap()
}

/// An entry of an MBR.
fn put(bytes: &mut [u8], slot: usize, kind: u8, start: u32, len: u32) {
    let entry = &mut bytes[446 + slot * 16..][..16];
    entry[4] = kind;
    entry[8..12].copy_from_slice(&start.to_le_bytes());
    entry[12..].copy_from_slice(&len.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
}

/// The superblock of a volume of `kib` blocks.
fn put_volume(bytes: &mut [u8], sector: usize, kib: u32, label: &str) {
    let at = &mut bytes[sector * 512 + 1024..];
    at[4..8].copy_from_slice(&kib.to_le_bytes());
    at[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
    at[0x68..0x78].copy_from_slice(&[0xab; 16]);
    at[0x78..0x78 + label.len()].copy_from_slice(label.as_bytes());
}

#[test]
fn old_tables_with_logical_partitions() {
    let mut disk = vec![0; 10 * 512];
    disk[440..444].copy_from_slice(&0x1234_abcd_u32.to_le_bytes());
    put(&mut disk, 0, 0x83, 1, 2);
    put(&mut disk, 1, 0x05, 4, 6);
    put(&mut disk[4 * 512..], 0, 0x83, 1, 1);
    put(&mut disk[4 * 512..], 1, 0x05, 3, 3);
    put(&mut disk[7 * 512..], 0, 0x83, 1, 1);
    let found = table(&disk).unwrap();
    let places: Vec<_> = found
        .partitions
        .iter()
        .map(|one| (one.number, one.start_bytes / SECTOR, one.len_bytes / SECTOR))
        .collect();
    assert_eq!(found.kind, "MBR");
    assert_eq!(places, [(1, 1, 2), (5, 5, 1), (6, 8, 1)]);
    assert_eq!(found.partitions[1].uuid, "1234abcd-05");
    assert_eq!(found.named("1234ABCD-05").unwrap().number, 5);
}

/// A disk with sectors of 4096 bytes.
struct Coarse(File);

impl ReadAt for Coarse {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        ReadAt::read_exact_at(&self.0, buffer, at)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }

    fn sector_bytes(&self) -> io::Result<u64> {
        Ok(4096)
    }
}

/// Read in sectors of 512 bytes, the tables of such a disk would name other places.
#[test]
fn old_tables_count_in_sectors_of_the_disk() {
    let mut bytes = vec![0; 10 * 4096];
    put(&mut bytes, 0, 0x83, 1, 2);
    put(&mut bytes, 1, 0x05, 4, 6);
    put(&mut bytes[4 * 4096..], 0, 0x83, 1, 1);
    put(&mut bytes[4 * 4096..], 1, 0x05, 3, 3);
    put(&mut bytes[7 * 4096..], 0, 0x83, 1, 1);
    let found = Table::read(&Coarse(disk(&bytes))).unwrap().unwrap();
    let places: Vec<_> = found
        .partitions
        .iter()
        .map(|one| (one.number, one.start_bytes / 4096, one.len_bytes / 4096))
        .collect();
    assert_eq!(places, [(1, 1, 2), (5, 5, 1), (6, 8, 1)]);
}

#[test]
fn a_chain_that_leads_back_ends() {
    let mut disk = vec![0; 4 * 512];
    put(&mut disk, 0, 0x05, 1, 3);
    put(&mut disk[512..], 0, 0x83, 1, 1);
    put(&mut disk[512..], 1, 0x05, 0, 3);
    let found = table(&disk).unwrap();
    assert_eq!(found.partitions.len(), 124);
    let Err(Error::Damaged(why)) = found.named("5") else {
        panic!("the partitions overlap");
    };
    assert!(why.contains("overlaps"), "{why}");
}

#[test]
fn boot_code_and_noise_are_no_tables() {
    for bytes in [vec![], vec![0; 512], vec![0xff; 4096]] {
        assert_eq!(table(&bytes), None);
    }
    let mut boot = vec![0xfa; 512];
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(table(&boot), None);
}

#[test]
fn partitions_are_chosen_by_number_label_and_uuid() {
    let mut disk = vec![0; 64 * 512];
    put(&mut disk, 0, 0x0c, 1, 7);
    put(&mut disk, 2, 0x83, 8, 16);
    put_volume(&mut disk, 8, 8, "root");
    let found = table(&disk).unwrap();
    assert_eq!(found.volume().unwrap().number, 3);
    for name in [
        "3",
        "root",
        "label=root",
        "uuid=ABABABAB-abab-abab-abab-abababababab",
    ] {
        assert_eq!(found.named(name).unwrap().number, 3, "{name}");
    }
    assert_eq!(found.named("1").unwrap().start_bytes, SECTOR);
    for name in [
        "2",
        "",
        "label=",
        "uuid=root",
        "99999999999999999999",
        "boot",
    ] {
        let error = found.named(name).unwrap_err().to_string();
        assert!(
            error.contains("no partition") && error.contains("\"root\""),
            "{error}"
        );
    }
    put(&mut disk, 3, 0x83, 30, 20);
    put_volume(&mut disk, 30, 8, "root");
    let found = table(&disk).unwrap();
    for error in [
        found.volume().unwrap_err(),
        found.named("root").unwrap_err(),
    ] {
        assert!(matches!(error, Error::Choice(_)), "{error}");
    }
    assert_eq!(found.named("4").unwrap().number, 4);
}

#[test]
fn partitions_that_cannot_be_right_are_refused() {
    let reason = |start, len, kib| {
        let mut disk = vec![0; 64 * 512];
        put(&mut disk, 0, 0x83, 8, 16);
        put(&mut disk, 1, 0x83, start, len);
        if kib > 0 {
            put_volume(&mut disk, start as usize, kib, "x");
        }
        match table(&disk).unwrap().named("2") {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(reason(24, 40, 20), "");
    assert!(reason(24, 41, 0).contains("not complete"));
    assert!(reason(23, 20, 0).contains("overlaps partition 1"));
    assert!(reason(u32::MAX, u32::MAX, 0).contains("not complete"));
    assert!(reason(24, 40, 21).contains("the volume in it"));
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum().to_le_bytes()
}

/// A header in `sector`, with its checksum.
fn put_header(disk: &mut [u8], sector: usize, (entries_at, count, size): (u64, u32, u32)) {
    let entries = &disk[entries_at as usize * 512..];
    let entries_crc = crc(&entries[..(count * size).min(entries.len() as u32) as usize]);
    let header = &mut disk[sector * 512..][..92];
    header.fill(0);
    header[..8].copy_from_slice(b"EFI PART");
    header[10] = 1;
    header[12] = 92;
    header[24..32].copy_from_slice(&(sector as u64).to_le_bytes());
    header[32..40].copy_from_slice(&(64 - sector as u64).to_le_bytes());
    header[72..80].copy_from_slice(&entries_at.to_le_bytes());
    header[80..84].copy_from_slice(&count.to_le_bytes());
    header[84..88].copy_from_slice(&size.to_le_bytes());
    header[88..92].copy_from_slice(&entries_crc);
    let own = crc(header);
    header[16..20].copy_from_slice(&own);
}

/// A disk of 64 sectors with a GPT whose second entry is "data", from sector 20 to 29.
fn gpt() -> Vec<u8> {
    let mut disk = vec![0; 64 * 512];
    put(&mut disk, 0, 0xee, 1, 63);
    for at in [2, 60] {
        let entry = &mut disk[at * 512 + 128..][..128];
        entry[0] = 1;
        entry[16..32].copy_from_slice(&std::array::from_fn::<u8, 16, _>(|at| at as u8));
        entry[32..40].copy_from_slice(&20u64.to_le_bytes());
        entry[40..48].copy_from_slice(&29u64.to_le_bytes());
        for (unit, letter) in entry[56..].chunks_exact_mut(2).zip("data".bytes()) {
            unit[0] = letter;
        }
    }
    put_header(&mut disk, 1, (2, 4, 128));
    put_header(&mut disk, 63, (60, 4, 128));
    disk
}

#[test]
fn a_gpt_is_read() {
    let found = table(&gpt()).unwrap();
    assert_eq!((found.kind, found.partitions.len()), ("GPT", 1));
    let one = found.named("data").unwrap();
    assert_eq!(
        (one.number, one.start_bytes, one.len_bytes),
        (2, 20 * 512, 10 * 512)
    );
    // The first three fields of a GUID are little-endian.
    assert_eq!(one.uuid, "03020100-0504-0706-0809-0a0b0c0d0e0f");
    // Without the MBR's word, there is no GPT, as for Linux.
    let mut without = gpt();
    without[..512].fill(0);
    assert_eq!(table(&without), None);
}

#[test]
fn a_damaged_gpt_is_read_from_its_copy_or_refused() {
    for at in [
        512 + 12,
        512 + 16,
        512 + 24,
        512 + 72,
        512 + 84,
        1024 + 128 + 40,
    ] {
        let mut bytes = gpt();
        bytes[at] ^= 0x10;
        let found = table(&bytes).unwrap();
        assert!(found.is_copy, "{at}");
        assert_eq!(found.named("2").unwrap().start_bytes, 20 * 512);
        bytes[63 * 512 + 30] ^= 1;
        let error = Table::read(&disk(&bytes)).unwrap_err();
        assert!(matches!(error, Error::Damaged(_)), "{error}");
    }
    // An MBR that lies.
    let mut bytes = vec![0; 8 << 10];
    put(&mut bytes, 0, 0xee, 1, 15);
    let error = Table::read(&disk(&bytes)).unwrap_err().to_string();
    assert!(error.contains("there is no header"), "{error}");
}

/// Counts and sizes whose checksums are right.
#[test]
fn a_hostile_gpt_is_bounded() {
    for place in [
        (2, 1025, 128),
        (2, u32::MAX, 128),
        (2, 4, 8192),
        (2, 4, 64),
        (2, 4, 192),
        (u64::MAX, 4, 128),
        (60, 128, 4096),
    ] {
        let mut bytes = gpt();
        bytes[63 * 512..].fill(0);
        let header = (place.0.min(60), place.1.min(4), place.2.min(128));
        put_header(&mut bytes, 1, header);
        let own = &mut bytes[512..604];
        own[72..80].copy_from_slice(&place.0.to_le_bytes());
        own[80..84].copy_from_slice(&place.1.to_le_bytes());
        own[84..88].copy_from_slice(&place.2.to_le_bytes());
        own[16..20].fill(0);
        let sum = crc(own);
        own[16..20].copy_from_slice(&sum);
        let error = Table::read(&disk(&bytes)).unwrap_err();
        assert!(matches!(error, Error::Damaged(_)), "{error}");
    }
}

/// Numbers are counted by partitions, not by tables, and through all chains, as Linux does.
#[test]
fn logical_partitions_have_the_numbers_of_linux() {
    let mut disk = vec![0; 64 * 512];
    put(&mut disk, 0, 0x05, 2, 30);
    put(&mut disk, 3, 0x0f, 40, 20);
    // No partition in the first table; the link first in the second one; a third entry, inside and outside.
    put(&mut disk[2 * 512..], 1, 0x05, 2, 20);
    put(&mut disk[4 * 512..], 0, 0x05, 10, 10);
    put(&mut disk[4 * 512..], 1, 0x83, 1, 2);
    put(&mut disk[4 * 512..], 2, 0x83, 4, 2);
    put(&mut disk[4 * 512..], 3, 0x83, 40, 2);
    put(&mut disk[12 * 512..], 0, 0x83, 1, 3);
    put(&mut disk[40 * 512..], 0, 0x83, 1, 5);
    let found = table(&disk).unwrap();
    let places: Vec<_> = found
        .partitions
        .iter()
        .map(|one| (one.number, one.start_bytes / SECTOR))
        .collect();
    assert_eq!(places, [(5, 5), (6, 8), (7, 13), (8, 41)]);
}

#[test]
fn a_partition_of_no_type_is_one() {
    let mut disk = vec![0; 64 * 512];
    put(&mut disk, 1, 0, 8, 16);
    let found = table(&disk).unwrap();
    assert_eq!(found.named("2").unwrap().start_bytes, 8 * SECTOR);
}

#[test]
fn no_partition_covers_a_table() {
    let covers = |found: Table, name: &str| {
        let error = found.place(name).unwrap_err().to_string();
        assert!(error.contains("covers the table"), "{error}");
    };
    let mut disk = vec![0; 64 * 512];
    put(&mut disk, 0, 0x17, 0, 16);
    put(&mut disk, 1, 0x05, 20, 40);
    put(&mut disk[20 * 512..], 0, 0x83, 0, 10);
    covers(table(&disk).unwrap(), "1");
    covers(table(&disk).unwrap(), "5");
    for (first, last) in [(1, 10), (2, 10), (50, 62), (62, 62), (63, 63)] {
        let mut disk = gpt();
        for at in [2, 60] {
            let entry = &mut disk[at * 512 + 128..][..128];
            entry[32..40].copy_from_slice(&u64::to_le_bytes(first));
            entry[40..48].copy_from_slice(&u64::to_le_bytes(last));
        }
        put_header(&mut disk, 1, (2, 4, 128));
        put_header(&mut disk, 63, (62, 4, 128));
        covers(table(&disk).unwrap(), "2");
    }
}

/// A partition may begin where a larger volume has a copy of its superblock.
#[test]
fn a_copy_of_a_superblock_is_no_volume() {
    let mut disk = vec![0; 64 * 512];
    put(&mut disk, 0, 0x83, 8, 16);
    put_volume(&mut disk, 8, 8, "copy");
    disk[8 * 512 + 1024 + 0x4c] = 1;
    assert!(table(&disk).unwrap().volume().is_ok());
    disk[8 * 512 + 1024 + 0x5a] = 1;
    assert!(table(&disk).unwrap().volume().is_err());
}

/// A volume in it that does not fit does not matter to a caller that overwrites it.
#[test]
fn a_place_does_not_depend_on_what_is_in_it() {
    let mut disk = vec![0; 64 * 512];
    put(&mut disk, 0, 0x83, 8, 16);
    put_volume(&mut disk, 8, 9, "large");
    let found = table(&disk).unwrap();
    assert!(found.named("1").is_err());
    assert!(found.volume().is_err());
    assert_eq!(found.place("1").unwrap().start_bytes, 8 * SECTOR);
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn any_bytes_end(
        at in 0..16 * 512usize,
        noise in prop::collection::vec(any::<u8>(), 1..600),
        seal in any::<bool>(),
    ) {
        let mut bytes = gpt();
        let end = (at + noise.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&noise[..end - at]);
        if seal {
            bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
            let sum = {
                let own = &mut bytes[512..604];
                own[16..20].fill(0);
                crc(own)
            };
            bytes[528..532].copy_from_slice(&sum);
        }
        if let Ok(Some(found)) = Table::read(&disk(&bytes)) {
            let _ = found.volume();
            for one in &found.partitions {
                if let Ok(fine) = found.named(&one.number.to_string()) {
                    prop_assert!(fine.start_bytes + fine.len_bytes <= bytes.len() as u64);
                }
            }
        }
    }
}
