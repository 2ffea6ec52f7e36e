(re-find #"[0-9]+" "a12b3") => "12"
(re-find #"(\w)(\d)?" "a") => ["a" "a" nil]
(re-find #"x" "abc") => nil
(re-find "b+" "abb") => "bb"
(re-find #"(?i)HELLO" "say hello") => "hello"
(re-find #"ñ." "añ😀") => "ñ😀"
(re-find #"a" nil) !! re-find: expects a string, got nil
(re-find 5 "a") !! re-find: expects a regular expression, got an integer
(re-find (re-pattern "(?=a)") "a") !! regular expression: invalid perl operator
(re-find (re-pattern "(a") "a") !! regular expression: missing
(re-matches #"[0-9]+" "123") => "123"
(re-matches #"[0-9]+" "12a") => nil
(re-matches #"(\d+)-(\d+)" "1-2") => ["1-2" "1" "2"]
(re-matches #"a" 1) !! re-matches: expects a string
(re-seq #"[0-9]+" "a12b3") => ["12" "3"]
(re-seq #"(\w)=(\d)" "a=1 b=2") => [["a=1" "a" "1"] ["b=2" "b" "2"]]
(re-seq #"x" "abc") => []
(re-seq #"x*" "ab") => ["" "" ""]
(re-seq #"(x+x+)+y" "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx") => []
(re-seq #"x" [1]) !! re-seq: expects a string
(re-find (re-pattern "a+") "baa") => "aa"
(= (re-pattern "a") (re-pattern "a")) => true
(= (re-pattern "a\"\"b") #"a\"\"b") => true
(re-find (re-pattern "a\"+\\\"") "xa\"\"") => "a\"\""
(str (re-pattern "a\"b")) => "#\"a\\\"b\""
(re-find (re-pattern (re-pattern "a")) "a") => "a"
(re-pattern 5) !! re-pattern: expects a regular expression
