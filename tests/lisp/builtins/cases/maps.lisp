(get {:a 1} :a) => 1
(get {"a" 1} :a) => 1
(get {:a 1} "a") => 1
(get {"a" 1 :a 2} "a") => 1
(get {:a nil} :a 5) => nil
(get {} :a 5) => 5
(get [1 2] 1) => 2
(get [1 2] 9) => nil
(get #{1} 1) => 1
(get #{1} 2 :no) => :no
(get nil :a) => nil
(get "añ" 1) => "ñ"
(get "abc" (/ 2 2)) => "b"
(get "abc" 3 :none) => :none
(get "abc" -1) => nil
(get {true 1 1 2} true) => 1
(get {[1] :v} [1]) => :v
(get {1 :one} 1.0) => :one
(get 5 :a) !! cannot look up
(get [1] :a) !! cannot look up :a in a vector
(contains? {:a nil} :a) => true
(contains? {"a" 1} :a) => true
(contains? #{1 2} 3) => false
(contains? ["a"] "a") => true
(contains? [[1]] [1]) => true
(contains? [1] true) => false
(contains? nil 1) => false
(contains? "abc" "a") !! contains?: expects a map, set or vector, got a string
(assoc {:a 1} :b 2) => {:a 1 :b 2}
(assoc {"a" 1} :a 2) => {"a" 2}
(assoc {"a" 1} :b 2) => {"a" 1 :b 2}
(assoc nil :a 1) => {:a 1}
(assoc {} :a 1 :b 2) => {:a 1 :b 2}
(assoc [1 2] 0 9) => [9 2]
(assoc [1] 1 2) => [1 2]
(assoc {} true 1 1 2) => {true 1 1 2}
(assoc [1] 5 9) !! assoc: the index is outside a vector of 1 items
(assoc [1] 0 :a 2 :b) !! outside a vector
(assoc {} :a 1 :b) !! assoc: a key has no value
(assoc 5 :a 1) !! assoc: expects a map or vector, got an integer
(assoc [1] :a 1) !! assoc: expects an integer, got a keyword
(dissoc {:a 1 :b 2} :a :c) => {:b 2}
(dissoc {"a" 1} :a) => {}
(dissoc {:a 1}) => {:a 1}
(dissoc nil :a) => {}
(dissoc [1] 0) !! dissoc: expects a map, got a vector
(update {:a 1} :a inc) => {:a 2}
(update {"a" 1} :a inc) => {"a" 2}
(update {} :a (fn [v] (if v 1 0))) => {:a 0}
(update {:a 1} :a + 10 100) => {:a 111}
(update [1 2] 1 inc) => [1 3]
(update nil :a (fnil inc 0)) => {:a 1}
(update [1] 5 inc) !! update: the index is outside
(update {:a 1} :a 5) !! not callable
(update 5 :a inc) !! update: expects a map or vector
(merge {:a 1} {:a 2 :b 3}) => {:a 2 :b 3}
(merge {:a 1} nil) => {:a 1}
(merge) => nil
(merge nil nil) => nil
(merge :x {}) !! merge: expects a map, got a keyword
(merge {:a 1} [[:b 2]]) !! merge: expects a map, got a vector
(merge {"a" 1} {:a 2}) => {"a" 2}
(merge {:a 1} {"a" 2 "b" 3}) => {:a 2 "b" 3}
(merge {"a" 1} {:b 2} {"b" 3 :a 4}) => {"a" 4 :b 3}
(merge {"a" 1 :a 2} {:a 3}) => {"a" 1 :a 3}
(merge {"a" 1 :b 1} {1 2 "b" 3}) => {"a" 1 :b 3 1 2}
(reduce merge {"a" 1} [{:a 2} {:a 3 :c 4} {"c" 5}]) => {"a" 3 :c 5}
(merge-with + {"a" 1} {:a 2} {"a" 3}) => {"a" 6}
(merge-with + {"a" 1} {:b 2} {"b" 3 :a 4}) => {"a" 5 :b 5}
(merge-with + {:a 1} {:a 2 :b 3}) => {:a 3 :b 3}
(merge-with into {:a [1]} {:a [2]}) => {:a [1 2]}
(merge-with +) => {}
(merge-with + {:a 1} 5) !! merge-with: expects a map
(merge-with 5 {:a 1}) !! not callable
(select-keys {:a 1 :b 2} [:a :z]) => {:a 1}
(select-keys {"a" nil} [:a]) => {:a nil}
(select-keys nil [:a]) => {}
(select-keys [1] [0]) !! select-keys: expects a map
(rename-keys {:a 1 :b 2} {:a :x}) => {:b 2 :x 1}
(rename-keys {"a" 1} {:a :b}) => {:b 1}
(rename-keys {:a 1 :b 2} {:a :b :b :a}) => {:a 2 :b 1}
(rename-keys {:a 1} {:z :y}) => {:a 1}
(rename-keys {:a 1} [:a :b]) !! rename-keys: expects a map
(keys {:b 1 :a 2}) => [:a :b]
(keys {"b" 1 :c 2 3 4}) => [3 :c "b"]
(keys {true 1 false 2 nil 3}) => [nil false true]
(keys nil) => nil
(keys [1]) !! keys: expects a map, got a vector
(vals {:b 1 :a 2}) => [2 1]
(vals {}) => nil
(vals #{1}) !! vals: expects a map, got a set
(entries {:b 1 :a 2}) => [[:a 2] [:b 1]]
(entries nil) => []
(entries [1]) !! entries: expects a map
(key (first {:a 1})) => :a
(map key {:a 1 :b 2}) => [:a :b]
(key :a) !! key: expects a [key value] pair
(val (first {:a 1})) => 1
(map val {:a 1}) => [1]
(val [1]) !! val: expects a [key value] pair
(update-vals {:a 1 :b 2} inc) => {:a 2 :b 3}
(update-vals {:x [{:n 1} {:n 2}]} (fn [xs] (sum-by :n xs))) => {:x 3}
(update-vals {:a {:n 1}} :n) => {:a 1}
(update-vals {} count) => {}
(update-vals inc {:a 1}) !! update-vals: expects a map, got a function
(update-keys {:a 1} name) => {"a" 1}
(update-keys {} name) => {}
(update-keys {1 :a} inc) => {2 :a}
(update-keys [1] inc) !! update-keys: expects a map
(get [10 20] (/ 2 2)) => 20
(get [10 20] 0.5) => nil
