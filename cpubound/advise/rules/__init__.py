"""The rules: each looks at facts and gives a finding or None; tables of them are beside."""
