//! RocksDB by its C interface: the few calls that a store needs.
//!
//! The shared library is opened when it is first asked for, so that nobody needs it to build or to
//! use the other stores.
//!
//! Invariant: every pointer in here came from RocksDB and is given back to it once.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

/// The library's names, and Debian's packages with it: of Debian 12 and 13, and of Ubuntu 24.04.
const LIBRARIES: [(&CStr, &str); 3] = [
    (c"librocksdb.so.7.8", "librocksdb7.8"),
    (c"librocksdb.so.9.10", "librocksdb9.10"),
    (c"librocksdb.so.8.9", "librocksdb8.9"),
];

/// An object of RocksDB.
type Object = *mut c_void;
type Text = *const c_char;
/// Where a call puts the text of its error.
type Problem = *mut *mut c_char;

/// The calls, by their names without `rocksdb_`, as `rocksdb/c.h` declares them.
macro_rules! calls {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Calls { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Calls {
            fn find(library: NonNull<c_void>) -> Result<Calls, String> {
                Ok(Calls { $($name: {
                    let found = symbol(library, concat!("rocksdb_", stringify!($name)))?;
                    // SAFETY: the symbol is a function with this declaration in `rocksdb/c.h`, and
                    // the library is never closed.
                    unsafe {
                        std::mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(found)
                    }
                },)* })
            }
        }
    };
}

calls! {
    options_create() -> Object;
    options_destroy(Object);
    options_set_create_if_missing(Object, c_uchar);
    options_set_enable_blob_files(Object, c_uchar);
    options_set_min_blob_size(Object, u64);
    options_set_enable_blob_gc(Object, c_uchar);
    options_set_use_direct_reads(Object, c_uchar);
    options_set_use_direct_io_for_flush_and_compaction(Object, c_uchar);
    options_set_compression(Object, c_int);
    open(Object, Text, Problem) -> Object;
    close(Object);
    writeoptions_create() -> Object;
    writeoptions_destroy(Object);
    writeoptions_set_sync(Object, c_uchar);
    readoptions_create() -> Object;
    readoptions_destroy(Object);
    put(Object, Object, Text, usize, Text, usize, Problem);
    delete(Object, Object, Text, usize, Problem);
    get_pinned(Object, Object, Text, usize, Problem) -> Object;
    pinnableslice_value(Object, *mut usize) -> Text;
    pinnableslice_destroy(Object);
    create_iterator(Object, Object) -> Object;
    iter_destroy(Object);
    iter_seek(Object, Text, usize);
    iter_valid(Object) -> c_uchar;
    iter_next(Object);
    iter_key(Object, *mut usize) -> Text;
    iter_get_error(Object, Problem);
    flush_wal(Object, c_uchar, Problem);
    free(*mut c_void);
}

fn symbol(library: NonNull<c_void>, name: &str) -> Result<NonNull<c_void>, String> {
    let text = CString::new(name).expect("a name in the source has no zero byte");
    // SAFETY: the library is open, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library.as_ptr(), text.as_ptr()) };
    NonNull::new(found)
        .ok_or_else(|| format!("RocksDB's library has no {name}; install another version of it"))
}

fn calls() -> Result<&'static Calls, &'static str> {
    static CALLS: OnceLock<Result<Calls, String>> = OnceLock::new();
    let found = CALLS.get_or_init(|| {
        let library = LIBRARIES.iter().find_map(|(name, _)| {
            // SAFETY: the name ends with a zero byte; what the library does when it is opened is to
            // set up its own tables.
            NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
        });
        let packages = LIBRARIES.map(|(_, package)| package);
        Calls::find(library.ok_or_else(|| {
            let how = trust::program::how_to_install(&packages);
            format!("RocksDB's library is not installed; {how}")
        })?)
    });
    found.as_ref().map_err(String::as_str)
}

/// What this machine lacks for RocksDB.
pub fn missing() -> Option<String> {
    calls().err().map(String::from)
}

/// An open database with blob files.
pub struct RocksDatabase {
    calls: &'static Calls,
    database: Object,
    synced: Object,
    unsynced: Object,
    reading: Object,
}

// SAFETY: RocksDB's database and options may be used from many threads at once; nothing changes
// the options after `open`.
unsafe impl Send for RocksDatabase {}
// SAFETY: as above.
unsafe impl Sync for RocksDatabase {}

/// A value, as RocksDB holds it.
pub struct Found<'a> {
    calls: &'static Calls,
    slice: Object,
    _database: &'a RocksDatabase,
}

/// In the order of the numbers.
fn bytes_of(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

impl Calls {
    /// Makes a call that reports an error.
    fn ask<T>(&self, call: impl FnOnce(Problem) -> T) -> Result<T, String> {
        let mut problem = null_mut();
        let answer = call(&mut problem);
        if problem.is_null() {
            return Ok(answer);
        }
        // SAFETY: an error is a text with a zero byte at its end, which the caller frees.
        let words = unsafe {
            let words = CStr::from_ptr(problem).to_string_lossy().into_owned();
            (self.free)(problem.cast());
            words
        };
        Err(words)
    }
}

impl RocksDatabase {
    /// Opens or makes the database in a directory.
    ///
    /// Errors: RocksDB's own words, or those of [`missing`].
    pub fn open(directory: &Path, direct: bool) -> Result<RocksDatabase, String> {
        let calls = calls()?;
        let name = CString::new(directory.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let direct = c_uchar::from(direct);
        // SAFETY: the options live until they are destroyed below; the name ends with a zero byte.
        unsafe {
            let options = (calls.options_create)();
            (calls.options_set_create_if_missing)(options, 1);
            (calls.options_set_enable_blob_files)(options, 1);
            (calls.options_set_min_blob_size)(options, 1024);
            (calls.options_set_enable_blob_gc)(options, 1);
            (calls.options_set_use_direct_reads)(options, direct);
            (calls.options_set_use_direct_io_for_flush_and_compaction)(options, direct);
            (calls.options_set_compression)(options, 0);
            let opened = calls.ask(|problem| (calls.open)(options, name.as_ptr(), problem));
            (calls.options_destroy)(options);
            let database = opened?;
            let (synced, unsynced) = ((calls.writeoptions_create)(), (calls.writeoptions_create)());
            (calls.writeoptions_set_sync)(synced, 1);
            let reading = (calls.readoptions_create)();
            Ok(RocksDatabase { calls, database, synced, unsynced, reading })
        }
    }

    fn writing(&self, is_durable: bool) -> Object {
        if is_durable { self.synced } else { self.unsynced }
    }

    pub fn put(&self, key: u64, value: &[u8], is_durable: bool) -> Result<(), String> {
        let (key, options) = (bytes_of(key), self.writing(is_durable));
        let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: both slices are valid for the call, which copies them.
        self.calls.ask(|problem| unsafe {
            let (key_bytes, bytes) = (key.len(), value.len());
            (self.calls.put)(self.database, options, key_at, key_bytes, value_at, bytes, problem);
        })
    }

    /// Deletes a key, whether it is there or not.
    pub fn delete(&self, key: u64, is_durable: bool) -> Result<(), String> {
        let (key, options) = (bytes_of(key), self.writing(is_durable));
        // SAFETY: the key is valid for the call, which copies it.
        self.calls.ask(|problem| unsafe {
            (self.calls.delete)(self.database, options, key.as_ptr().cast(), key.len(), problem);
        })
    }

    /// The value under a key.
    pub fn get(&self, key: u64) -> Result<Option<Found<'_>>, String> {
        let key = bytes_of(key);
        // SAFETY: the key is valid for the call.
        let slice = self.calls.ask(|problem| unsafe {
            let key_at = key.as_ptr().cast();
            (self.calls.get_pinned)(self.database, self.reading, key_at, key.len(), problem)
        })?;
        let is_there = !slice.is_null();
        Ok(is_there.then_some(Found { calls: self.calls, slice, _database: self }))
    }

    /// The keys of a range, ascending.
    pub fn keys(&self, keys: Range<u64>) -> Result<Vec<u64>, String> {
        let (calls, first) = (self.calls, bytes_of(keys.start));
        let mut found = Vec::new();
        // SAFETY: the iterator lives until it is destroyed below; a key that it points to has its
        // length and is valid until the iterator moves.
        unsafe {
            let iterator = (calls.create_iterator)(self.database, self.reading);
            (calls.iter_seek)(iterator, first.as_ptr().cast(), first.len());
            while (calls.iter_valid)(iterator) != 0 {
                let mut length = 0;
                let key = (calls.iter_key)(iterator, &mut length);
                let key: &[u8] = std::slice::from_raw_parts(key.cast(), length);
                // Another key is none of this store's.
                let key = key.try_into().map_or(u64::MAX, u64::from_be_bytes);
                if key >= keys.end {
                    break;
                }
                found.push(key);
                (calls.iter_next)(iterator);
            }
            let ended = calls.ask(|problem| (calls.iter_get_error)(iterator, problem));
            (calls.iter_destroy)(iterator);
            ended?;
        }
        Ok(found)
    }

    /// Makes the log durable.
    pub fn sync(&self) -> Result<(), String> {
        // SAFETY: the database is open.
        self.calls.ask(|problem| unsafe { (self.calls.flush_wal)(self.database, 1, problem) })
    }
}

impl Found<'_> {
    pub fn bytes(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: the slice has `length` bytes until it is destroyed with this value; of an empty
        // one the pointer is not looked at.
        unsafe {
            let bytes = (self.calls.pinnableslice_value)(self.slice, &mut length);
            if length == 0 { &[] } else { std::slice::from_raw_parts(bytes.cast(), length) }
        }
    }
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody has the bytes any more.
        unsafe { (self.calls.pinnableslice_destroy)(self.slice) }
    }
}

impl Drop for RocksDatabase {
    fn drop(&mut self) {
        // SAFETY: nobody uses the database any more.
        unsafe {
            (self.calls.close)(self.database);
            (self.calls.writeoptions_destroy)(self.synced);
            (self.calls.writeoptions_destroy)(self.unsynced);
            (self.calls.readoptions_destroy)(self.reading);
        }
    }
}
