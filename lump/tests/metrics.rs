//! What a store counts, in its text and through the facade.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block::MemoryDevice;
use lump::Durability::{Buffered, Durable, Written};
use lump::{CreateOptions, OpenOptions, Store};

fn created() -> Arc<MemoryDevice> {
    // With a journal of which these tests use less than half: no checkpoint comes by itself.
    let device = Arc::new(MemoryDevice::new(8 << 20, 512));
    let uuid = Some(uuid::Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff));
    let options = CreateOptions { objects_max: Some(200), uuid, ..CreateOptions::default() };
    Store::create(&device, &options).unwrap();
    device
}

fn open(device: Arc<MemoryDevice>) -> Store {
    Store::open(device, &OpenOptions::default()).unwrap()
}

#[test]
fn what_was_done_is_counted() {
    let store = open(created());
    let before = store.metrics();
    (0..5).for_each(|key| store.put(key, &[1; 1000], Durable).unwrap());
    store.get(1).unwrap();
    store.delete_range(0..2, Durable).unwrap();
    store.checkpoint().unwrap();
    let after = store.metrics();
    assert_eq!((after.puts - before.puts, after.put_bytes), (5, 5000));
    assert_eq!((after.gets, after.get_bytes, after.deleted), (1, 1000, 2));
    assert_eq!(after.commits - before.commits, 6);
    assert_eq!(after.journal_blocks - before.journal_blocks, 6);
    assert_eq!((after.flushes - before.flushes, after.checkpoints), (6 + 2, 1));
    let text = after.prometheus();
    let store = "{store=\"00112233-4455-6677-8899-aabbccddeeff\"}";
    let expected = format!("# TYPE lump_puts_total counter\nlump_puts_total{store} 5\n");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains(&format!("\nlump_objects{store} 3\n")), "{text}");
}

/// A recorder of the facade: the last value of each metric, or how many a histogram got.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<BTreeMap<String, f64>>>);

struct ToldOne(Told, String);

impl ToldOne {
    fn add(&self, value: f64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
    }
}

impl metrics::CounterFn for ToldOne {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }
    fn absolute(&self, _: u64) {
        unreachable!("counters are counted up");
    }
}

impl metrics::GaugeFn for ToldOne {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set");
    }
    fn decrement(&self, _: f64) {
        unreachable!("gauges are set");
    }
    fn set(&self, value: f64) {
        self.0.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl metrics::HistogramFn for ToldOne {
    fn record(&self, seconds: f64) {
        assert!((0.0..60.0).contains(&seconds));
        self.add(1.0);
    }
}

impl Told {
    fn one(&self, key: &metrics::Key) -> Arc<ToldOne> {
        let labels: Vec<_> = key.labels().map(|label| (label.key(), label.value())).collect();
        assert_eq!(labels, [("store", "00112233-4455-6677-8899-aabbccddeeff")]);
        Arc::new(ToldOne(self.clone(), key.name().into()))
    }
}

impl metrics::Recorder for Told {
    fn describe_counter(
        &self,
        name: metrics::KeyName,
        _: Option<metrics::Unit>,
        about: metrics::SharedString,
    ) {
        assert!(name.as_str().ends_with("_total") && about.ends_with('.'), "{about}");
    }
    fn describe_gauge(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn describe_histogram(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }
    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(self.one(key))
    }
    fn register_histogram(
        &self,
        key: &metrics::Key,
        _: &metrics::Metadata<'_>,
    ) -> metrics::Histogram {
        metrics::Histogram::from_arc(self.one(key))
    }
}

#[test]
fn the_recorder_of_the_facade_hears_what_the_text_says() {
    let told = Told::default();
    let device = created();
    let options =
        OpenOptions { buffer_age_max: Some(Duration::from_secs(3600)), ..Default::default() };
    let store = metrics::with_local_recorder(&told, || Store::open(device, &options).unwrap());
    (0..5).for_each(|key| store.put(key, &[1; 1000], Durable).unwrap());
    store.get(1).unwrap();
    store.delete(2, Written).unwrap();
    store.checkpoint().unwrap();
    let last = |name: &str| told.0.lock().unwrap()[name];
    store.put(9, &[1; 1000], Buffered).unwrap();
    while store.metrics().usage.gathered_ms == 0 {
        std::thread::yield_now();
    }
    assert!(last("lump_gathered_bytes") >= 1000.0 && last("lump_gathered_ms") >= 1.0);
    store.sync().unwrap();
    let metrics = store.metrics();
    assert_eq!((last("lump_gathered_bytes"), last("lump_gathered_ms")), (0.0, 0.0));
    assert_eq!(last("lump_gathered_batches_total"), 1.0);
    let told = told.0.lock().unwrap();
    let mut count = 0;
    for line in metrics.prometheus().lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.split_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let name = name.split('{').next().unwrap();
        assert_eq!(told.get(name).copied().unwrap_or(0.0), value, "{name}");
        count += 1;
    }
    assert_eq!(count, 24);
    assert_eq!((told["lump_put_seconds"], told["lump_get_seconds"]), (6.0, 1.0));
    assert_eq!(told["lump_flush_seconds"], metrics.flushes as f64);
    assert_eq!(told["lump_checkpoint_seconds"], 1.0);
}
