//! `lump bench`: puts, then gets, by several clients, and what they cost the device.
//!
//! Its keys begin with 64 random bits and are deleted at the end.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::tool::ToolFailure;
use block::{CountingDevice, Counts};
use clap::Args;
use hdrhistogram::Histogram;
use lump::{Durability, Store, Value};

use crate::tools::{about, open, say, store_on};

/// Share of the free space that the values may take: overwrites need room beside them.
const SPACE_SHARE: u64 = 2;

#[derive(Args)]
pub struct BenchArguments {
    /// Device or image with a store.
    device: PathBuf,
    /// Size of each value (k, M allowed).
    #[arg(short, long, value_parser = crate::size, default_value = "64k")]
    size: u64,
    /// Clients, a thread each.
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: u32,
    /// Seconds of puts and of gets.
    #[arg(short = 't', long, default_value_t = 5)]
    seconds: u64,
    /// Puts return before they are durable; one sync comes at the end and is timed.
    #[arg(short, long)]
    buffered: bool,
}

/// One phase: what the clients saw and what the device did.
struct BenchmarkPhase {
    nanoseconds: Histogram<u64>,
    elapsed: Duration,
    counts: Counts,
}

/// Measures puts and gets.
pub fn bench(arguments: &BenchArguments) -> Result<(), ToolFailure> {
    let path = &arguments.device;
    let device = Arc::new(CountingDevice::new(open(path, false)?));
    let store = store_on(device.clone(), path, false)?;
    let prefix = uuid::Uuid::new_v4().as_u128() << 64;
    let usage = store.usage();
    let clients = u64::from(arguments.clients);
    let room = usage.free_bytes / SPACE_SHARE / arguments.size.saturating_add(8192);
    let objects = room.min((usage.objects_max - usage.objects) / SPACE_SHARE) / clients;
    if objects == 0 || arguments.size > lump::layout::VALUE_BYTES_MAX {
        let why = "there is no room for values of this size; nothing was written";
        return Err(ToolFailure::Refused(format!("{}: {why}", path.display())));
    }
    let durability = if arguments.buffered { Durability::Buffered } else { Durability::Durable };
    let put = |key, value: &mut Value| store.put_value(key, value, durability).map(|()| true);
    let get = |key, value: &mut Value| store.get_into(key, value);
    let phases = [("put", true), ("get", false)].map(|(name, puts)| {
        device.take_counts();
        let act: &(dyn Fn(u128, &mut Value) -> lump::Result<bool> + Sync) =
            if puts { &put } else { &get };
        let phase = run(&store, arguments, prefix, objects, act, puts);
        (name, phase.map(|phase| BenchmarkPhase { counts: device.take_counts(), ..phase }))
    });
    store
        .delete_range(prefix..=prefix | u128::from(u64::MAX), Durability::Durable)
        .map_err(about(path))?;
    say!(
        "phase  operations/s      MiB/s   p50 us   p99 us p99.9 us   max us  reads writes flushes"
    );
    for (name, phase) in phases {
        let BenchmarkPhase { nanoseconds, elapsed, counts } = phase.map_err(about(path))?;
        let (seconds, count) = (elapsed.as_secs_f64(), nanoseconds.len() as f64);
        let us = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1e3;
        let each = |requests: u64| requests as f64 / count;
        say!(
            "{name:5} {:13.0} {:10.1} {:8.0} {:8.0} {:8.0} {:8.0} {:6.2} {:6.2} {:7.3}",
            count / seconds,
            count * arguments.size as f64 / seconds / f64::from(1 << 20),
            us(0.5),
            us(0.99),
            us(0.999),
            us(1.0),
            each(counts.reads),
            each(counts.writes),
            each(counts.flushes)
        );
    }
    say!("requests to the device are an operation each");
    store.close().map_err(about(path))
}

fn run(
    store: &Store,
    arguments: &BenchArguments,
    prefix: u128,
    objects: u64,
    act: &(dyn Fn(u128, &mut Value) -> lump::Result<bool> + Sync),
    puts: bool,
) -> lump::Result<BenchmarkPhase> {
    let start = Instant::now();
    let limit = Duration::from_secs(arguments.seconds);
    let client = |number: u32| -> lump::Result<Histogram<u64>> {
        let mut nanoseconds = Histogram::new(3).expect("3 digits are a valid precision");
        let mut value = Value::zeroed(arguments.size as usize);
        value
            .iter_mut()
            .zip(0_u32..)
            .for_each(|(byte, place)| *byte = (place.wrapping_mul(31) >> 3) as u8);
        let first = prefix | u128::from(number) << 48;
        for step in 0_u64.. {
            let key = first | u128::from(step % objects);
            let began = Instant::now();
            // What the puts did not get to is where the gets begin anew.
            let is_there = act(key, &mut value)?;
            if is_there {
                let taken = began.elapsed().as_nanos() as u64;
                nanoseconds.record(taken).expect("a histogram without bounds grows");
            }
            if start.elapsed() >= limit {
                break;
            }
        }
        Ok(nanoseconds)
    };
    let clients: Vec<lump::Result<Histogram<u64>>> = std::thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> =
            (0..arguments.clients).map(|number| scope.spawn(move || client(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
    });
    if puts {
        store.sync()?;
    }
    let mut nanoseconds = Histogram::new(3).expect("3 digits are a valid precision");
    for client in clients {
        nanoseconds.add(client?).expect("both hold 64-bit values");
    }
    Ok(BenchmarkPhase { nanoseconds, elapsed: start.elapsed(), counts: Counts::default() })
}
