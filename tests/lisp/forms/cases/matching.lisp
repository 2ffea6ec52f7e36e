; a value compared with others
(case 2 1 :one 2 :two) => :two
(case "x" ("a" "x") :found :other) => :found
(case :z :a 1 :other) => :other
(case nil nil :nothing 1) => :nothing
(case 7 1 1 2 2 3 3 4 4 5 5 6 6 7 :seven) => :seven
(case [1 2] [1 2] :pair 0) => :pair
(condp = 2 1 :one 2 :two :other) => :two
(condp < 5 10 :ten 3 :three :none) => :three
(condp = 9 1 :one :other) => :other
(filter (where :a = 1) [{:a 1} {:a 2}]) => [{:a 1}]
(filter (where :a) [{:a 1} {:a nil} {}]) => [{:a 1}]
(filter (where :a not= 1) [{:a 1} {:a 2}]) => [{:a 2}]
(filter (where :a > 1) [{:a 1} {:a 2} {:a nil} {}]) => [{:a 2}]
(filter (where :a >= 1.5) [{:a 1} {:a 2}]) => [{:a 2}]
(filter (where :a < 2) [{:a 1} {:a 2}]) => [{:a 1}]
(filter (where :a <= 2) [{:a 1} {:a 3}]) => [{:a 1}]
(let [limit 1] (filter (where :a > limit) [{:a 1} {:a 2} {}])) => [{:a 2}]
(filter (where :s = :done) [{:s "done"} {:s :done} {:s "x"}]) => [{:s "done"} {:s :done}]
(filter (where :s = "done") [{"s" :done}]) => [{"s" :done}]
(filter (where :a = true) [{:a true} {:a 1} {:a "true"}]) => [{:a true}]
(filter (where :a = 1) [{:a true} {:a 1.0}]) => [{:a 1.0}]
(filter (where :a = nil) [{:a nil} {:a 1} {}]) => [{:a nil} {}]
(filter (where [:a :b] = 1) [{:a {:b 1}} {:a nil} {}]) => [{:a {:b 1}}]
(filter (where [:a 0] = 1) [{:a [1]} {:a []}]) => [{:a [1]}]
(filter (where "a" = 1) [{"a" 1} {:a 2}]) => [{"a" 1}]
(filter (where :t includes :x) [{:t ["x"]} {:t "axb"} {:t nil} {:t [:x]}]) => [{:t ["x"]} {:t "axb"} {:t [:x]}]
(filter (where :t in [:a "b"]) [{:t "a"} {:t :b} {:t "c"} {:t nil}]) => [{:t "a"} {:t :b}]
((where :a) {:a 1}) => true
(map (where :a = (+ 1 1)) [{:a 2}]) => [true]
(filter (all-of (where :a = 1) (fn [m] (:b m))) [{:a 1 :b 2} {:a 1}]) => [{:a 1 :b 2}]
(filter (any-of (where :a = 1) #(= (:b %) 2)) [{:a 1} {:b 2} {}]) => [{:a 1} {:b 2}]
(filter (none-of (where :a = 1)) [{:a 1} {:a 2}]) => [{:a 2}]
(where :a "x") !! analysis_error 1:1 where needs a field
(where :a ~= 1) !! parse_error 1:11 there are no macros
(where :a like 1) !! analysis_error 1:11 unknown operator in where
(where x = 1) !! analysis_error 1:8 the field of where is a keyword
(where) !! analysis_error 1:1 where needs a field
(case 1) !! analysis_error 1:1 case needs a value and clauses
(case 5 1 :one) !! eval_error 1:1 no clause fits the value
(condp =) !! analysis_error 1:1 condp needs
(filter (where :a > 1) [{:a "x"}]) !! eval_error 1:9 >: expects numbers
(filter (where :a = 1) [5]) !! eval_error 1:9 cannot look up :a in an integer
(filter (where :a in 5) [{:a 1}]) !! eval_error 1:9 where: in expects a vector
