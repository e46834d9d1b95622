//! RocksDB by its C interface: the few calls that the benchmark needs.
//!
//! Invariant: every pointer in here came from RocksDB and is given back to it once.

use std::ffi::{CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> *mut c_void;
    fn rocksdb_options_destroy(options: *mut c_void);
    fn rocksdb_options_set_create_if_missing(options: *mut c_void, on: c_uchar);
    fn rocksdb_options_set_enable_blob_files(options: *mut c_void, on: c_uchar);
    fn rocksdb_options_set_min_blob_size(options: *mut c_void, bytes: u64);
    fn rocksdb_options_set_enable_blob_gc(options: *mut c_void, on: c_uchar);
    fn rocksdb_options_set_use_direct_reads(options: *mut c_void, on: c_uchar);
    fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(
        options: *mut c_void,
        on: c_uchar,
    );
    fn rocksdb_options_set_compression(options: *mut c_void, kind: c_int);
    fn rocksdb_open(
        options: *const c_void,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut c_void;
    fn rocksdb_close(database: *mut c_void);
    fn rocksdb_writeoptions_create() -> *mut c_void;
    fn rocksdb_writeoptions_destroy(options: *mut c_void);
    fn rocksdb_writeoptions_set_sync(options: *mut c_void, on: c_uchar);
    fn rocksdb_readoptions_create() -> *mut c_void;
    fn rocksdb_readoptions_destroy(options: *mut c_void);
    fn rocksdb_put(
        database: *mut c_void,
        options: *const c_void,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_get(
        database: *mut c_void,
        options: *const c_void,
        key: *const c_char,
        key_bytes: usize,
        value_bytes: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn rocksdb_free(memory: *mut c_void);
}

/// An open database with blob files, which reads and compacts past the page cache.
pub struct RocksDb {
    database: *mut c_void,
    synced: *mut c_void,
    unsynced: *mut c_void,
    reading: *mut c_void,
}

// SAFETY: RocksDB's database and options may be used from many threads at once; nothing changes
// the options after `open`.
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

fn check(error: *mut c_char) {
    assert!(error.is_null(), "RocksDB failed");
}

impl RocksDb {
    /// Opens or makes the database in a directory.
    pub fn open(directory: &Path) -> Self {
        let name = CString::new(directory.as_os_str().as_bytes()).expect("no zero byte");
        let mut error = null_mut();
        // SAFETY: the options live until they are destroyed below; the name ends with a zero byte.
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_enable_blob_files(options, 1);
            rocksdb_options_set_min_blob_size(options, 1024);
            rocksdb_options_set_enable_blob_gc(options, 1);
            rocksdb_options_set_use_direct_reads(options, 1);
            rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
            rocksdb_options_set_compression(options, 0);
            let database = rocksdb_open(options, name.as_ptr(), &mut error);
            rocksdb_options_destroy(options);
            check(error);
            let (synced, unsynced) = (rocksdb_writeoptions_create(), rocksdb_writeoptions_create());
            rocksdb_writeoptions_set_sync(synced, 1);
            Self { database, synced, unsynced, reading: rocksdb_readoptions_create() }
        }
    }

    /// Puts a value.
    pub fn put(&self, key: &[u8], value: &[u8], is_durable: bool) {
        let options = if is_durable { self.synced } else { self.unsynced };
        let mut error = null_mut();
        // SAFETY: both slices are valid for the call, which copies them.
        unsafe {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            rocksdb_put(
                self.database,
                options,
                key_at,
                key.len(),
                value_at,
                value.len(),
                &mut error,
            );
        }
        check(error);
    }

    /// Gives a value to `look`; returns whether there is one.
    pub fn get(&self, key: &[u8], look: impl FnOnce(&[u8])) -> bool {
        let (mut length, mut error) = (0, null_mut());
        // SAFETY: the value has `length` bytes until it is freed.
        unsafe {
            let key_at = key.as_ptr().cast();
            let value = rocksdb_get(
                self.database,
                self.reading,
                key_at,
                key.len(),
                &mut length,
                &mut error,
            );
            check(error);
            if value.is_null() {
                return false;
            }
            look(std::slice::from_raw_parts(value.cast(), length));
            rocksdb_free(value.cast());
        }
        true
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: nobody uses the database any more.
        unsafe {
            rocksdb_close(self.database);
            rocksdb_writeoptions_destroy(self.synced);
            rocksdb_writeoptions_destroy(self.unsynced);
            rocksdb_readoptions_destroy(self.reading);
        }
    }
}
