//! A serializer around `serde_json`'s that refuses what JSON would silently change: NaN and infinity (written as
//! null), integers beyond 64 bits (read back as floats) and nesting that no reader accepts (P3).

use std::cell::{Cell, RefCell};
use std::fmt::Display;

use serde::ser::{self, Error as _, Serialize, Serializer};

use super::{DEPTH_MAX, PayloadError};

/// The struct name by which `serde_json` recognises its own `RawValue`.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// The value as compact JSON text, and whether raw text was copied into it that nobody has checked yet.
pub(super) fn write<T: Serialize + ?Sized>(value: &T) -> Result<(String, bool), PayloadError> {
    let mut bytes = Vec::with_capacity(128);
    let watch = Watch::default();
    match watch.over(value).serialize(&mut serde_json::Serializer::new(&mut bytes)) {
        Ok(()) => String::from_utf8(bytes)
            .map(|text| (text, watch.holds_raw.get()))
            .map_err(|error| PayloadError::Unserialisable { message: error.to_string() }),
        Err(_) if watch.not_finite.get() => Err(PayloadError::NotFinite { path: watch.path() }),
        Err(error) => Err(PayloadError::Unserialisable { message: format!("{error}, at {}", watch.path()) }),
    }
}

/// What is known about the value while it is written.
#[derive(Default)]
struct Watch {
    depth: Cell<u32>,
    not_finite: Cell<bool>,
    holds_raw: Cell<bool>,
    /// Where an error arose, innermost first; filled while it travels outwards, so that success pays nothing.
    way_out: RefCell<Vec<String>>,
}

impl Watch {
    fn over<'w, T: ?Sized>(&'w self, value: &'w T) -> Watched<'w, T> {
        Watched { value, watch: self }
    }

    fn enter<E: ser::Error>(&self, levels: u32) -> Result<(), E> {
        self.depth.set(self.depth.get() + levels);
        if self.depth.get() > DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(())
    }

    fn leave(&self, levels: u32) {
        self.depth.set(self.depth.get() - levels);
    }

    fn inside(&self, part: String) {
        self.way_out.borrow_mut().push(part);
    }

    fn path(&self) -> String {
        self.way_out.borrow().iter().rev().fold(String::from("$"), |path, part| path + part)
    }
}

struct Watched<'w, T: ?Sized> {
    value: &'w T,
    watch: &'w Watch,
}

impl<T: Serialize + ?Sized> Serialize for Watched<'_, T> {
    fn serialize<S: Serializer>(&self, inner: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Watcher { inner, watch: self.watch })
    }
}

struct Watcher<'w, S> {
    inner: S,
    watch: &'w Watch,
}

impl<'w, S: Serializer> Watcher<'w, S> {
    fn parts<C>(
        self,
        levels: u32,
        open: impl FnOnce(S) -> Result<C, S::Error>,
    ) -> Result<Parts<'w, C>, S::Error> {
        self.watch.enter(levels)?;
        Ok(Parts { inner: open(self.inner)?, watch: self.watch, levels, index: 0 })
    }

    fn finite(&self, finite: bool) -> Result<(), S::Error> {
        if finite {
            return Ok(());
        }
        self.watch.not_finite.set(true);
        Err(S::Error::custom("not a finite number"))
    }
}

macro_rules! pass_on {
    ($($method:ident($type:ty);)*) => {
        $(fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        })*
    };
}

impl<'w, S: Serializer> Serializer for Watcher<'w, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Parts<'w, S::SerializeSeq>;
    type SerializeTuple = Parts<'w, S::SerializeTuple>;
    type SerializeTupleStruct = Parts<'w, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Parts<'w, S::SerializeTupleVariant>;
    type SerializeMap = Parts<'w, S::SerializeMap>;
    type SerializeStruct = Parts<'w, S::SerializeStruct>;
    type SerializeStructVariant = Parts<'w, S::SerializeStructVariant>;

    pass_on! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_char(char);
        serialize_str(&str);
        serialize_unit_struct(&'static str);
    }

    fn serialize_i128(self, value: i128) -> Result<S::Ok, S::Error> {
        match (u64::try_from(value), i64::try_from(value)) {
            (Ok(value), _) => self.inner.serialize_u64(value),
            (_, Ok(value)) => self.inner.serialize_i64(value),
            _ => Err(beyond_64_bits(value)),
        }
    }

    fn serialize_u128(self, value: u128) -> Result<S::Ok, S::Error> {
        match u64::try_from(value) {
            Ok(value) => self.inner.serialize_u64(value),
            Err(_) => Err(beyond_64_bits(value)),
        }
    }

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        self.finite(value.is_finite())?;
        self.inner.serialize_f32(value)
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        self.finite(value.is_finite())?;
        self.inner.serialize_f64(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<S::Ok, S::Error> {
        self.watch.enter(1)?;
        self.watch.leave(1);
        self.inner.serialize_bytes(value)
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&self.watch.over(value))
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_newtype_struct(name, &self.watch.over(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.watch.enter(1)?;
        let written = self
            .inner
            .serialize_newtype_variant(name, index, variant, &self.watch.over(value))
            .inspect_err(|_| self.watch.inside(format!(".{variant}")))?;
        self.watch.leave(1);
        Ok(written)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.parts(1, |inner| inner.serialize_seq(len))
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.parts(1, |inner| inner.serialize_tuple(len))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.parts(1, |inner| inner.serialize_tuple_struct(name, len))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.parts(2, |inner| inner.serialize_tuple_variant(name, index, variant, len))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.parts(1, |inner| inner.serialize_map(len))
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        if name == RAW_VALUE {
            self.watch.holds_raw.set(true);
        }
        self.parts(1, |inner| inner.serialize_struct(name, len))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.parts(2, |inner| inner.serialize_struct_variant(name, index, variant, len))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

fn beyond_64_bits<E: ser::Error>(value: impl Display) -> E {
    E::custom(format_args!("the integer {value} does not fit 64 bits, write it as text"))
}

/// The parts of an array or object, each of them watched.
struct Parts<'w, C> {
    inner: C,
    watch: &'w Watch,
    /// How deep this one nests: a variant with parts is an object around them.
    levels: u32,
    index: usize,
}

impl<C> Parts<'_, C> {
    fn next_index(&mut self) -> usize {
        self.index += 1;
        self.index - 1
    }
}

macro_rules! items {
    ($trait:ident, $method:ident) => {
        impl<C: ser::$trait> ser::$trait for Parts<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let index = self.next_index();
                self.inner
                    .$method(&self.watch.over(value))
                    .inspect_err(|_| self.watch.inside(format!("[{index}]")))
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.watch.leave(self.levels);
                self.inner.end()
            }
        }
    };
}

items!(SerializeSeq, serialize_element);
items!(SerializeTuple, serialize_element);
items!(SerializeTupleStruct, serialize_field);
items!(SerializeTupleVariant, serialize_field);

macro_rules! fields {
    ($trait:ident) => {
        impl<C: ser::$trait> ser::$trait for Parts<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                self.inner
                    .serialize_field(key, &self.watch.over(value))
                    .inspect_err(|_| self.watch.inside(format!(".{key}")))
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(key)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.watch.leave(self.levels);
                self.inner.end()
            }
        }
    };
}

fields!(SerializeStruct);
fields!(SerializeStructVariant);

/// Keys go to `serde_json` as they are: it refuses those that are not text, numbers or bools.
impl<C: ser::SerializeMap> ser::SerializeMap for Parts<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        let index = self.next_index();
        self.inner
            .serialize_value(&self.watch.over(value))
            .inspect_err(|_| self.watch.inside(format!("{{member {index}}}")))
    }

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), C::Error> {
        let index = self.next_index();
        self.inner
            .serialize_entry(key, &self.watch.over(value))
            .inspect_err(|_| self.watch.inside(member(key, index)))
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.watch.leave(self.levels);
        self.inner.end()
    }
}

/// How the path shows a member of a map: `["its key"]`, or its number if the key itself is the trouble.
fn member<K: Serialize + ?Sized>(key: &K, index: usize) -> String {
    match serde_json::to_string(key) {
        Ok(key) => format!("[{}]", key.chars().take(60).collect::<String>()),
        Err(_) => format!("{{member {index}}}"),
    }
}
