def sub(path, *pairs):
    s=open(path).read()
    for a,b in pairs:
        assert s.count(a)>=1,(path,a)
        s=s.replace(a,b,1)
    open(path,'w').write(s)
sub('engine/src/error.rs',("        detail: String,\n    },","        detail: String,\n        /// Name, type and value of each column of the key, for who shows values in another way.\n        key: Box<[(String, ColumnType, Value)]>,\n    },"))
sub('engine/src/paged/index.rs',("            detail: format!(\"Key ({})=({}) already exists.\", names.join(\", \"), values.join(\", \")),\n","            detail: format!(\"Key ({})=({}) already exists.\", names.join(\", \"), values.join(\", \")),\n            key: columns.iter().map(|c| self.key_part(*c, row)).collect(),\n"),
("    /// 23505 in PostgreSQL's words.","    fn key_part(&self, column: usize, row: RowRef<'_>) -> (String, ColumnType, Value) {\n        let def = &self.def.columns[column];\n        (def.name.clone(), def.column_type, row.get(column).to_value())\n    }\n\n    /// 23505 in PostgreSQL's words."))
for f in ['engine/tests/uniqueness.rs','engine/tests/ddl.rs']:
    sub(f,("Error::UniqueViolation { constraint, detail }","Error::UniqueViolation { constraint, detail, .. }"))
sub('sql/src/exec/mod.rs',('''        if let varve_engine::Error::UniqueViolation { constraint, .. } = &e {
            out = out.of_constraint(constraint);
        }''','''        if let varve_engine::Error::UniqueViolation { constraint, key, .. } = &e {
            let names: Vec<&str> = key.iter().map(|(name, ..)| name.as_str()).collect();
            let values = key.iter().map(|(_, t, value)| rules::shown_value(value.as_datum(), *t));
            let values: Vec<String> = values.collect();
            let detail = format!("Key ({})=({}) already exists.", names.join(", "), values.join(", "));
            out = out.of_constraint(constraint).with_detail(detail);
        }'''))
