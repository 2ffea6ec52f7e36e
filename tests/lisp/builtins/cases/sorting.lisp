(sort [3 1 2]) => [1 2 3]
(sort [2 1.5 1]) => [1 1.5 2]
(sort ["b" nil "a" nil]) => [nil nil "a" "b"]
(sort [:b :a]) => [:a :b]
(sort [true false]) => [false true]
(sort [[2 1] [1 9] [1]]) => [[1] [1 9] [2 1]]
(sort > [1 3 2]) => [3 2 1]
(sort > [1 nil 2]) => [2 1 nil]
(sort < ["b" "a"]) => ["a" "b"]
(sort >= [1 2]) => [2 1]
(sort <= [2 1]) => [1 2]
(sort compare ["b" nil "a"]) => [nil "a" "b"]
(sort (fn [a b] (compare b a)) [1 3 2]) => [3 2 1]
(sort (fn [a b] (> a b)) [1 3 2]) => [3 2 1]
(sort (fn [a b] true) [1 2 3]) => [3 2 1]
(count (sort (fn [a b] (- 1)) [3 1 2 5 4])) => 5
(sort (fn [a b] nil) [2 1]) => [2 1]
(sort {:b 1 :a 2}) => [[:a 2] [:b 1]]
(sort #{2 1}) => [1 2]
(sort nil) => []
(sort []) => []
(sort "cab") => ["a" "b" "c"]
(sort [1 "a"]) !! cannot compare
(sort [1 true]) !! cannot compare
(sort [{:a 1} {:a 2}]) !! no order
(sort nil [2 1]) !! not callable
(sort [1 2] >) !! sort: expects a collection, got a function
(sort inc [2 1]) !! expects 1 argument, got 2
(sort-by :a [{:a 2} {:a 1}]) => [{:a 1} {:a 2}]
(sort-by :a [{:a 2} {} {:a 1}]) => [{} {:a 1} {:a 2}]
(sort-by :a > [{:a 1} {} {:a 2}]) => [{:a 2} {:a 1} {}]
(sort-by :a > [{:a 1 :b 1} {:a 1 :b 2}]) => [{:a 1 :b 1} {:a 1 :b 2}]
(sort-by "a" [{:a 2} {"a" 1}]) => [{"a" 1} {:a 2}]
(sort-by [:a :b] [{:a {:b 2}} {:a {:b 1}}]) => [{:a {:b 1}} {:a {:b 2}}]
(sort-by count ["aaa" "b"]) => ["b" "aaa"]
(sort-by second > {:x 1 :y 3}) => [[:y 3] [:x 1]]
(sort-by (juxt :a :b) [{:a 1 :b 2} {:a 1 :b 1}]) => [{:a 1 :b 1} {:a 1 :b 2}]
(sort-by :a (fn [x y] (compare y x)) [{:a 1} {:a 2}]) => [{:a 2} {:a 1}]
(sort-by :k [1 2] >) !! sort-by: expects a collection, got a function
(sort-by :a [{:a 1} {:a "x"}]) !! cannot compare
(sort-by :a 5) !! sort-by: expects a collection
