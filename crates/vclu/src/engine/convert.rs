//! Conversion of values between Lua and the rest of the program.

use mlua::{Lua, LuaString, Table, Value};

use crate::limit::{TABLE_BYTES_MAX, TABLE_DEPTH_MAX, TABLE_VALUES_MAX};
use crate::value::LuaValue;

/// Copies a value out of Lua. `object`: the metatable of objects. Fails for a table that is nested too deep, contains
/// itself, and for too many values or too long texts: the copy is outside the limit of memory for scripts.
pub(crate) fn from_lua(value: &Value, object: &Table) -> mlua::Result<LuaValue> {
    copy(value, object, 0, &mut CopyAllowance { n_values: TABLE_VALUES_MAX, n_bytes: TABLE_BYTES_MAX })
}

/// What a copy may still contain.
struct CopyAllowance {
    n_values: usize,
    n_bytes: usize,
}

impl CopyAllowance {
    fn text(&mut self, text: &LuaString) -> mlua::Result<String> {
        let left = self.n_bytes.checked_sub(text.as_bytes().len());
        self.n_bytes = left.ok_or_else(|| too_large(format!("has texts of more than {TABLE_BYTES_MAX} bytes")))?;
        Ok(text.to_string_lossy())
    }
}

fn copy(value: &Value, object: &Table, depth: usize, left: &mut CopyAllowance) -> mlua::Result<LuaValue> {
    left.n_values = match left.n_values.checked_sub(1) {
        Some(n_values) if depth <= TABLE_DEPTH_MAX => n_values,
        Some(_) => return Err(too_large(format!("is nested deeper than {TABLE_DEPTH_MAX} tables"))),
        None => return Err(too_large(format!("has more than {TABLE_VALUES_MAX} values"))),
    };
    Ok(match value {
        Value::Nil => LuaValue::Nil,
        Value::Boolean(is_on) => LuaValue::Boolean(*is_on),
        Value::Integer(integer) => LuaValue::Number(*integer as f64),
        Value::Number(number) => LuaValue::Number(*number),
        Value::String(text) => LuaValue::Text(left.text(text)?),
        Value::Table(table) if table.metatable().as_ref() == Some(object) => match table.raw_get::<Value>("name")? {
            Value::String(name) => LuaValue::Object(left.text(&name)?),
            _ => LuaValue::Nil,
        },
        Value::Table(table) => {
            let mut entries = Vec::new();
            table.for_each(|key: Value, value: Value| {
                let key = copy(&key, object, depth + 1, left)?;
                entries.push((key, copy(&value, object, depth + 1, left)?));
                Ok(())
            })?;
            LuaValue::sort_entries(&mut entries);
            LuaValue::Table(entries)
        }
        other => LuaValue::Opaque(other.type_name()),
    })
}

fn too_large(what: String) -> mlua::Error {
    mlua::Error::runtime(format!("the value {what}"))
}

/// Copies a value into Lua. An object becomes its name.
pub(crate) fn to_lua(value: &LuaValue, lua: &Lua) -> mlua::Result<Value> {
    Ok(match value {
        LuaValue::Nil | LuaValue::Opaque(_) => Value::Nil,
        LuaValue::Boolean(is_on) => Value::Boolean(*is_on),
        LuaValue::Number(number) => Value::Number(*number),
        LuaValue::Text(text) | LuaValue::Object(text) => Value::String(lua.create_string(text)?),
        LuaValue::Table(entries) => {
            let table = lua.create_table()?;
            for (key, value) in entries {
                let key = to_lua(key, lua)?;
                if !key.is_nil() {
                    table.raw_set(key, to_lua(value, lua)?)?;
                }
            }
            Value::Table(table)
        }
    })
}
