(parse-json "{\"a\": [1, 2.5, null, true, \"x\"]}") => {"a" [1 2.5 nil true "x"]}
(:a (parse-json "{\"a\": 5}")) => 5
(parse-json "[]") => []
(json/parse-string "1") => 1
(parse-json "{a: 1}") !! parse-json: not JSON at line 1, column 2
(parse-json "") !! parse-json: not JSON
(parse-json "NaN") !! parse-json
(parse-json nil) !! parse-json: expects a string, got nil
(to-json {:a [1 nil :b "c"] "d" #{2 1}}) => "{\"a\":[1,null,\"b\",\"c\"],\"d\":[1,2]}"
(to-json nil) => "null"
(to-json "ñ") => "\"ñ\""
(parse-json (to-json {:a {:b [1.5]}})) => {"a" {"b" [1.5]}}
(json/write-str [1]) => "[1]"
(to-json ##Inf) !! to-json: infinite numbers
