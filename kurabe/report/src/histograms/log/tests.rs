//! Lines made by hand: what is read, and what damage comes to.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer, V2Serializer};

use super::*;

fn parse(log: &[u8]) -> Result<Vec<OperationHistogram>, String> {
    let mut reader = LogReader::default();
    reader.read(log)?;
    Ok(reader.kinds)
}

/// Buckets in which something was counted, by their least value.
fn filled(kind: &OperationHistogram) -> Vec<(u64, u64)> {
    let histogram = &kind.histogram;
    let least = |value| histogram.lowest_equivalent(value);
    let entries = histogram.iter_recorded();
    entries.map(|entry| (least(entry.value_iterated_to()), entry.count_at_value())).collect()
}

fn histogram(samples: &[u64]) -> Histogram<u64> {
    let mut histogram = Histogram::<u64>::new_with_max(1 << 52, 3).unwrap();
    samples.iter().for_each(|sample| histogram.record(*sample).unwrap());
    histogram
}

#[test]
fn no_damaged_byte_panics() {
    let samples: Vec<u64> = (1..=200).map(|number| number * 100_000).collect();
    let whole = [("put", &samples[..]), ("get", &[7])].map(|(kind, samples)| {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&histogram(samples), &mut bytes).unwrap();
        format!("Tag={kind},0.000,1.000,1.000,{}\n", STANDARD.encode(bytes))
    });
    let whole = whole.concat().into_bytes();
    assert_eq!(parse(&whole).unwrap().len(), 2);
    for length in 0..whole.len() {
        let _ = parse(&whole[..length]);
    }
    for place in 0..whole.len() {
        for mask in [0x01, 0x10, 0x80] {
            let mut damaged = whole.clone();
            damaged[place] ^= mask;
            let _ = parse(&damaged);
        }
    }
}

/// A line with a histogram that is not compressed, so that every byte of it can be chosen.
fn line(plain: &[u8]) -> String {
    format!("Tag=put,0.000,1.000,1.000,{}\n", STANDARD.encode(plain))
}

fn plain(counts: &[u8], length: u32, low: u64, high: u64) -> Vec<u8> {
    let mut plain = PLAIN_COOKIE.to_vec();
    plain.extend(length.to_be_bytes());
    plain.extend(0_u32.to_be_bytes());
    plain.extend(3_u32.to_be_bytes());
    plain.extend(low.to_be_bytes());
    plain.extend(high.to_be_bytes());
    plain.extend(1.0_f64.to_be_bytes());
    plain.extend(counts);
    plain
}

#[test]
fn lengths_and_counts_are_not_taken_at_their_word() {
    let parsed = |plain: Vec<u8>| parse(line(&plain).as_bytes());
    // A run of 10 zeroes, then a count of 1: the sound one.
    let counts = [19, 2];
    assert_eq!(filled(&parsed(plain(&counts, 2, 1, 4095)).unwrap()[0]), [(10, 1)]);
    let problem = parsed(plain(&counts, u32::MAX, 1, 4095)).unwrap_err();
    assert!(problem.contains("does not go with its bytes"), "{problem}");
    let problem = parsed(plain(&counts, 2, 1, u64::MAX)).unwrap_err();
    assert!(problem.contains("are none"), "{problem}");
    // The most negative number, which has no positive counterpart.
    let problem = parsed(plain(&[0xff; 9], 9, 1, 4095)).unwrap_err();
    assert!(problem.contains("beyond all measure"), "{problem}");
    // More counts than values.
    assert!(parsed(plain(&[0xff, 0xff, 0xff, 0x7f, 2], 5, 1, 4095)).is_err());
    assert!(parsed(Vec::new()).is_err());
}

fn serialized(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).unwrap();
    bytes
}

#[test]
fn histograms_of_other_digits_are_read_by_the_library() {
    let mut coarse = Histogram::<u64>::new(2).unwrap();
    for sample in [5, 70_000, 70_000, 1 << 40] {
        coarse.record(sample).unwrap();
    }
    let kinds = parse(line(&serialized(&coarse)).as_bytes()).unwrap();
    let near = filled(&kinds[0]).into_iter().find(|(low, _)| low.abs_diff(70_000) < 700);
    assert_eq!(near.map(|(_, count)| count), Some(2));
    assert_eq!(filled(&kinds[0]).iter().map(|(_, count)| count).sum::<u64>(), 4);
}

/// More than fits the room that is there at first, and a stream that was cut off.
#[test]
fn what_is_packed_is_unpacked_whatever_its_size() {
    let long: Vec<u8> =
        (0..PLAIN_BYTES_COMMON as u32 * 5).map(|number| (number % 251) as u8).collect();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&long).unwrap();
    let packed = encoder.finish().unwrap();
    let (mut inflater, mut plain) = (Decompress::new(true), Vec::new());
    assert!(inflate(&mut inflater, &packed, &mut plain, 64 << 20).unwrap() == long);
    for length in [0, 1, packed.len() / 2, packed.len() - 1] {
        let problem = inflate(&mut inflater, &packed[..length], &mut plain, 64 << 20).unwrap_err();
        assert_eq!(problem, "it breaks off", "{length}");
    }
    assert!(inflate(&mut inflater, &packed, &mut plain, 64 << 20).unwrap() == long);
}

#[test]
fn no_kind_takes_the_name_of_all_of_them() {
    let text = line(&plain(&[19, 2], 2, 1, 4095)).replace("put", OVERALL_OPERATION);
    let problem = parse(text.as_bytes()).unwrap_err();
    assert!(problem.contains("means all kinds"), "{problem}");
}

#[test]
fn what_unpacks_to_far_more_than_it_holds_is_refused() {
    let line_of = |kind: &str, plain: &[u8]| {
        let mut packed = COMPRESSED_COOKIE.to_vec();
        packed.extend([0; 4]);
        let mut encoder = ZlibEncoder::new(packed, Compression::best());
        encoder.write_all(plain).unwrap();
        let packed = encoder.finish().unwrap();
        format!("Tag={kind},0.000,1.000,1.000,{}\n", STANDARD.encode(packed))
    };
    // Noughts, a thousand times as many as their bytes.
    let noughts = vec![0; 2 << 20];
    let bomb = line_of("put", &plain(&noughts, noughts.len() as u32, 1, 1 << 52));
    assert!(parse(bomb.as_bytes()).is_ok());
    let problem = parse(bomb.repeat(12).as_bytes()).unwrap_err();
    assert!(problem.contains(TOO_MUCH), "{problem}");
    // Five digits: four million buckets for a line of some bytes.
    let mut fine = plain(&[2], 1, 1, 1 << 52);
    fine[15] = 5;
    let mut reader = LogReader { unpackable: 100_000, ..Default::default() };
    let place = reader.begin("put");
    let problem = reader.decode(&STANDARD.encode(&fine), place).unwrap_err();
    assert!(problem.contains(TOO_MUCH), "{problem}");
    fine[15] = 9;
    assert!(parse(line(&fine).as_bytes()).unwrap_err().contains("5 significant digits"));
    // A count in the last bucket of each of many kinds.
    let sound = plain(&[19, 2], 2, 1, 4095);
    let many: String = (0..=KINDS_MAX).map(|kind| line_of(&format!("k{kind}"), &sound)).collect();
    let problem = parse(many.as_bytes()).unwrap_err();
    assert!(problem.contains("more than 256 kinds"), "{problem}");
}
